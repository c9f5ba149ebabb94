"""The explanation of one message: its fate, one sentence, and the numbers that were compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Explanation:
    """The fate of one message in one pass."""

    stream: str
    partition: int
    seq: int
    subject: str | None
    """Of a message that is gone this, `ts_ns` and `size` are None where no file tells any more."""
    ts_ns: int | None
    size: int | None
    goes: bool
    """Whether the pass lets it go; none does that to a message that is gone already."""
    rule: str | None
    """The rule that lets it go; None if it stays, or if it is not known which one took it."""
    sentence: str
    arithmetic: tuple[str, ...]
    """One line for each rule of the policy, with the numbers that were compared; of one that is gone, what is known."""
    removed: Mapping[str, Any] | None = None
    """The removal of a message that is gone, as JSON values: `run`, `kind`, `removed_ns`, `as_of_ns`, `rules`, `who`,
    `certain`, `recovery`; None: it is there."""

    def as_json(self) -> dict[str, Any]:
        """The explanation as JSON values."""
        values = asdict(self) | {"arithmetic": list(self.arithmetic)}
        if self.removed is None:
            del values["removed"]
        return values


def explanation(
    stream: str,
    message: Mapping[str, Any],
    rule: str | None,
    sentence: str,
    arithmetic: tuple[str, ...],
) -> Explanation:
    """Make the explanation of a message that goes by `rule`, or stays where that is None.

    Args:
        stream: its stream.
        message: `partition`, `seq`, `subject`, `ts_ns` and `size` among its columns.
        rule: the rule that lets it go.
        sentence: why it goes or stays.
        arithmetic: the numbers that were compared, a line each.
    """
    place = {name: message[name] for name in ("partition", "seq", "subject", "ts_ns", "size")}
    goes = rule is not None
    return Explanation(
        stream, **place, goes=goes, rule=rule, sentence=sentence, arithmetic=arithmetic
    )
