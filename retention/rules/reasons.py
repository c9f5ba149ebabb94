"""Reasons for removals by rules, in a few words with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retention.core.policy import Policy
from retention.core.units import MICROSECOND, format_duration, format_size
from retention.rules import (
    DELETE_SEGMENTS,
    INTEREST,
    MAX_TOPIC_SIZE,
    MESSAGE_EXPIRY,
    ROLLUP,
    WORKQUEUE,
)
from retention.rules.jetstream.evaluate import ORDER


def reason_of(rule: str, policy: Policy, as_of_ns: int) -> str:
    """The reason for removals by a rule in a pass, with its numbers; for any other rule, its name."""
    words = _OF.get(rule)
    return rule if words is None else f"{rule}{words(policy, as_of_ns)}"


def _unneeded(policy: Policy, as_of_ns: int) -> str:
    del policy, as_of_ns
    return ", no consumer needs them any more"


def _expiry(policy: Policy, as_of_ns: int) -> str:
    del as_of_ns
    expiry_us = policy.topic.message_expiry_us if policy.topic else None
    return f" {format_duration((expiry_us or 0) * MICROSECOND)}, the newest in each segment is that old"


def _topic_size(policy: Policy, as_of_ns: int) -> str:
    del as_of_ns
    size = policy.topic.max_topic_size if policy.topic else None
    return f" {format_size(size or 0)}, exceeded with them"


def _by_request(policy: Policy, as_of_ns: int) -> str:
    del policy, as_of_ns
    return ", requested before, while consumers needed them"


def _rolled_up(policy: Policy, as_of_ns: int) -> str:
    del policy, as_of_ns
    return ", a later message replaced them"


_OF: Mapping[str, Callable[[Policy, int], str]] = {
    INTEREST: _unneeded,
    WORKQUEUE: _unneeded,
    **{rule.name: rule.reason for rule in ORDER},
    MESSAGE_EXPIRY: _expiry,
    MAX_TOPIC_SIZE: _topic_size,
    DELETE_SEGMENTS: _by_request,
    ROLLUP: _rolled_up,
}
