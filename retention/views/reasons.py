"""Why a rule lets messages go, in a few words with its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retention.core.policy import Policy
from retention.core.units import MICROSECOND, format_duration, format_size
from retention.plan.plan import Plan
from retention.rules import (
    DELETE_SEGMENTS,
    INTEREST,
    MAX_AGE,
    MAX_BYTES,
    MAX_MSGS,
    MAX_MSGS_PER_SUBJECT,
    MAX_TOPIC_SIZE,
    MESSAGE_EXPIRY,
    MSG_TTL,
    WORKQUEUE,
)
from retention.views.wording import brief_instant


def reason(plan: Plan, rule: str) -> str:
    """Why a rule lets messages go, with its numbers."""
    if plan.request is not None:
        return plan.request.wording
    return f"{rule}{_OF[rule](plan.policy, plan.as_of_ns)}"


def _unneeded(policy: Policy, as_of_ns: int) -> str:
    del policy, as_of_ns
    return ", no consumer needs them any more"


def _count(policy: Policy, as_of_ns: int) -> str:
    del as_of_ns
    return f" {policy.max_msgs:,}, {policy.max_msgs:,} or more are newer"


def _bytes(policy: Policy, as_of_ns: int) -> str:
    del as_of_ns
    return f" {format_size(policy.max_bytes or 0)}, exceeded together with everything newer"


def _per_subject(policy: Policy, as_of_ns: int) -> str:
    del as_of_ns
    limit = policy.max_msgs_per_subject or 0
    return f" {limit:,}, {limit:,} or more on the subject are newer"


def _age(policy: Policy, as_of_ns: int) -> str:
    age = policy.max_age_ns or 0
    return f" {format_duration(age)}, stored by {brief_instant(as_of_ns - age)}"


def _ttl(policy: Policy, as_of_ns: int) -> str:
    del policy, as_of_ns
    return ", outlived their own TTL"


def _expiry(policy: Policy, as_of_ns: int) -> str:
    del as_of_ns
    expiry_us = policy.topic.message_expiry_us if policy.topic else None
    return f" {format_duration((expiry_us or 0) * MICROSECOND)}, the newest in each segment is that old"


def _topic_size(policy: Policy, as_of_ns: int) -> str:
    del as_of_ns
    size = policy.topic.max_topic_size if policy.topic else None
    return f" {format_size(size or 0)}, exceeded with them"


def _asked(policy: Policy, as_of_ns: int) -> str:
    del policy, as_of_ns
    return ", asked for before, when consumers held them back"


_OF: Mapping[str, Callable[[Policy, int], str]] = {
    INTEREST: _unneeded,
    WORKQUEUE: _unneeded,
    MAX_MSGS: _count,
    MAX_BYTES: _bytes,
    MAX_MSGS_PER_SUBJECT: _per_subject,
    MAX_AGE: _age,
    MSG_TTL: _ttl,
    MESSAGE_EXPIRY: _expiry,
    MAX_TOPIC_SIZE: _topic_size,
    DELETE_SEGMENTS: _asked,
}
