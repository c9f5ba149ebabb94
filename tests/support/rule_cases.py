"""Named cases of a rule, as its documentation: a log, a policy, and the fate of each message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from retention.core.policy import Policy
from tests.support.worlds import Message, World, plan_of, removed_by

NOW = 100
"""The instant of every case."""
_WORD = re.compile(
    r"(?P<subject>[a-z])(?P<deletes>#)?(@(?P<ts>\d+))?(\*(?P<size>\d+))?(~(?P<deadline>\d+))?(?P<never>!)?"
)


@dataclass(frozen=True)
class Case:
    """The effect of a pass at `NOW` on a log.

    A word of `log` is a message, by sequence: its subject, `#` if it deletes the subject, `@` its
    time, `*` its size, `~` its deadline, `!` if its TTL is `never`. The defaults are time 90, size
    1, no TTL, and a value. A word of `fates` is the rule that removes the message, or `-` if it is
    kept.
    """

    policy: Policy
    log: str
    fates: str

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(_message(seq, word) for seq, word in enumerate(self.log.split(), start=1))

    @property
    def expected(self) -> dict[int, str]:
        fates = enumerate(self.fates.split(), start=1)
        return {seq: rule for seq, rule in fates if rule != "-"}


def check(case: Case) -> None:
    """Assert a case in all layouts of its log."""
    assert len(case.messages) == len(case.fates.split())
    for world in _layouts(case.messages):
        plan = plan_of(world, case.policy, NOW)
        gone = removed_by(world, plan)
        assert set(gone) == set(case.expected), world
        assert all(rule in (None, case.expected[seq]) for seq, rule in gone.items()), world
        rules = list(case.expected.values())
        assert plan.by_rule == {rule: rules.count(rule) for rule in rules}, world


def _layouts(messages: tuple[Message, ...]) -> Iterator[World]:
    """One file, a file per message, two segments, and two files with interleaved sequences."""
    half = len(messages) // 2
    yield World(((1, messages),), 1)
    yield World(tuple((one.seq, (one,)) for one in messages), len(messages))
    yield World(((1, messages[:half]), (half + 1, messages[half:])), half + 1)
    yield World(((1, messages[::2]), (1, messages[1::2])), 1)


def _message(seq: int, word: str) -> Message:
    found = _WORD.fullmatch(word)
    assert found is not None, word
    deadline = found["deadline"]
    return Message(
        seq=seq,
        subject=found["subject"],
        ts_ns=int(found["ts"] or 90),
        size=int(found["size"] or 1),
        never=found["never"] is not None,
        deadline_ns=None if deadline is None else int(deadline),
        deletes=found["deletes"] is not None,
    )
