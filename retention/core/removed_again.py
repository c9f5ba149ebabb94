"""Limits that remove messages again after an undo, and ways to keep the messages: a function of two policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from retention.core.policy import Policy
from retention.core.units import MICROSECOND, format_duration, format_size

_GUARD = "guards: {max_removed_share: 0%}"


@dataclass(frozen=True)
class RemovedAgain:
    """The rules that remove the messages of a run again after its undo."""

    rules: tuple[str, ...]
    """Rules that removed messages in the run and are still in the policy with the same or a lower limit."""
    sentence: str
    """The rules with their limits, and the ways to keep the messages."""


def removed_again(by_rule: Iterable[str], then: Policy, now: Policy) -> RemovedAgain | None:
    """The rules by which the next pass removes the messages of an undone run; None: no rule certainly does.

    A pass does not repeat a requested removal (delete, purge, drop). A limit raised or deleted
    since may keep the messages.

    Args:
        by_rule: the rules by which the run removed messages.
        then: the policy of the run.
        now: the policy of the next pass.
    """
    limits = {rule: _LIMITS[rule] for rule in by_rule if rule in _LIMITS}
    again = {
        rule: limit.spelled(value)
        for rule, limit in limits.items()
        if (value := limit.of(now)) is not None and value <= (limit.of(then) or value)
    }
    if not again:
        return None
    named = " and ".join(f"{rule} ({value})" if value else rule for rule, value in again.items())
    ways = [
        *_ways(again),
        *([f"set `{_GUARD}`, which refuses the pass"] if again.keys() - _RELEASES else []),
    ]
    return RemovedAgain(
        tuple(again),
        f"the next pass removes them again, by {named}; to keep them, first {', or '.join(ways)}",
    )


def _ways(rules: Iterable[str]) -> Iterable[str]:
    """All ways, except guards, to keep messages that these rules remove."""
    raised = [rule for rule in rules if rule not in _RELEASES and rule != "msg_ttl"]
    if raised:
        yield f"raise {' and '.join(raised)} in the configuration"
    if _RELEASES.intersection(rules):
        yield "add a consumer that needs them"


@dataclass(frozen=True)
class _Limit:
    of: Callable[[Policy], int | None]
    """The limit in a policy (a higher limit keeps more messages); None: there is none."""
    spelled: Callable[[int], str]


def _releasing(retention: str) -> _Limit:
    return _Limit(lambda policy: 0 if policy.retention == retention else None, lambda _: "")


_RELEASES = frozenset({"interest", "workqueue"})
_LIMITS = {
    "max_msgs": _Limit(
        lambda policy: policy.max_msgs if policy.discard == "old" else None, "{:,}".format
    ),
    "max_bytes": _Limit(
        lambda policy: policy.max_bytes if policy.discard == "old" else None, format_size
    ),
    "max_msgs_per_subject": _Limit(lambda policy: policy.max_msgs_per_subject, "{:,}".format),
    "max_age": _Limit(lambda policy: policy.max_age_ns, format_duration),
    "msg_ttl": _Limit(
        lambda policy: 0 if policy.allow_msg_ttl else None, lambda _: "their own TTL"
    ),
    "delete_retention": _Limit(lambda policy: policy.delete_retention_ns, format_duration),
    "message_expiry": _Limit(
        lambda policy: policy.topic.message_expiry_us if policy.topic else None,
        lambda expiry_us: format_duration(expiry_us * MICROSECOND),
    ),
    "max_topic_size": _Limit(
        lambda policy: policy.topic.max_topic_size if policy.topic else None, format_size
    ),
    "interest": _releasing("interest"),
    "workqueue": _releasing("workqueue"),
}
"""Each rule of a pass, and its limit."""
