"""The explanation of one message: its fate, one sentence, and the compared numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from retention.core.json_object import JsonObject


@dataclass(frozen=True)
class Explanation:
    """The fate of one message in one pass."""

    stream: str
    partition: int
    seq: int
    subject: str | None
    """None, like `ts_ns` and `size`, for a removed message that no file contains any more."""
    ts_ns: int | None
    size: int | None
    goes: bool
    """Whether the pass removes it; False for a message already removed."""
    rule: str | None
    """The rule that removes it; None if it is kept, or if the rule is unknown."""
    sentence: str
    arithmetic: tuple[str, ...]
    """One line for each rule of the policy, with the compared numbers; for a removed message, the known facts."""
    removed: Mapping[str, Any] | None = None
    """The removal of a removed message, as JSON values: `run`, `kind`, `removed_ns`, `as_of_ns`,
    `rules`, `who`, `certain`, `recovery`; None: it is not removed."""

    def as_json(self) -> JsonObject:
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
    """Make the explanation of a message removed by `rule`, or kept if that is None.

    Args:
        stream: its stream.
        message: `partition`, `seq`, `subject`, `ts_ns` and `size` among its columns.
        rule: the rule that removes it.
        sentence: why it is removed or kept.
        arithmetic: the compared numbers, one line per rule.
    """
    place = {name: message[name] for name in ("partition", "seq", "subject", "ts_ns", "size")}
    goes = rule is not None
    return Explanation(
        stream, **place, goes=goes, rule=rule, sentence=sentence, arithmetic=arithmetic
    )
