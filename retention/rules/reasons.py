"""Reasons for removals by rules, in a few words with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from retention.core.policy import Policy
from retention.core.units import MICROSECOND, format_duration, format_size
from retention.rules import (
    DELETE_SEGMENTS,
    DUPLICATE,
    INTEREST,
    MAX_AGE,
    MAX_BYTES,
    MAX_MSGS,
    MAX_MSGS_PER_SUBJECT,
    MAX_TOPIC_SIZE,
    MESSAGE_EXPIRY,
    REFUSED,
    ROLLUP,
    WORKQUEUE,
)
from retention.rules.jetstream.evaluate import ORDER


def reason_of(rule: str, policy: Policy, as_of_ns: int) -> str:
    """The reason for removals by a rule in a pass, with its numbers; for any other rule, its name.

    A pass that replays has reasons without numbers: until its instant, limits of an earlier configuration may have
    acted.
    """
    if policy.mode == "replay" and rule in _REPLAYED:
        return f"{rule}, {_REPLAYED[rule]}"
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
_LATER = "exceeded on a server with these limits when it stored a later message"
_REPLAYED: Mapping[str, str] = {
    MAX_MSGS: _LATER,
    MAX_BYTES: _LATER,
    MAX_MSGS_PER_SUBJECT: f"{_LATER} on the subject",
    MAX_AGE: "reached on a server with these limits",
    REFUSED: "a server with these limits would not have stored them",
    DUPLICATE: "a server would have had their ids already",
}
"""Rule of a pass that replays → its reason; the other rules remove at the pass as they do at a publish."""
