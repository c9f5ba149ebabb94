"""Limits that remove messages again after an undo, and ways to keep the messages: a function of two policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from retention.core.policy import Policy
from retention.rules import DUPLICATE, INTEREST, REFUSED, WORKQUEUE
from retention.rules.acting import settings_of

_GUARD = "guards: {max_removed_share: 0%}"
_RELEASES = frozenset({INTEREST, WORKQUEUE})
_ANSWERS = {
    REFUSED: "raise the limits that refuse them",
    DUPLICATE: "lower duplicate_window",
}
"""A server's answer to a publish, the rule of a pass that replays → the way to get another one."""


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
    since may keep the messages, and so may another mode.

    Args:
        by_rule: the rules by which the run removed messages.
        then: the policy of the run.
        now: the policy of the next pass.
    """
    again = dict(_repeated(by_rule, then, now))
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


def _repeated(by_rule: Iterable[str], then: Policy, now: Policy) -> Iterator[tuple[str, str]]:
    """The rules that remove the same messages again, each with its limit; releases and answers have none."""
    if then.mode != now.mode:
        return
    settings = settings_of(now)
    for rule in by_rule:
        if rule == now.retention or (rule in _ANSWERS and then == now):
            yield rule, ""
        elif rule in settings:
            before, limit = settings[rule].of(then), settings[rule].of(now)
            if limit is not None and (before is None or limit <= before):
                yield rule, settings[rule].spell(limit)


def _ways(rules: Iterable[str]) -> Iterable[str]:
    """All ways, except guards, to keep messages that these rules remove."""
    rules = list(rules)
    raised = [rule for rule in rules if rule not in {*_RELEASES, *_ANSWERS, "msg_ttl"}]
    if raised:
        yield f"raise {' and '.join(raised)} in the configuration"
    yield from (_ANSWERS[rule] for rule in rules if rule in _ANSWERS)
    if _RELEASES.intersection(rules):
        yield "add a consumer that needs them"
