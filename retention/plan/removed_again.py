"""Limits that remove messages again after an undo, and ways to keep the messages: a function of two policies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from retention.core.policy import Policy
from retention.rules import INTEREST, WORKQUEUE
from retention.rules.acting import settings_of

_GUARD = "guards: {max_removed_share: 0%}"
_RELEASES = frozenset({INTEREST, WORKQUEUE})


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
    rules = list(by_rule)
    limits = {rule: setting for rule, setting in settings_of(now).items() if rule in rules}
    again = {rule: "" for rule in rules if rule in _RELEASES and rule == now.retention} | {
        rule: limit.spell(value)
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
