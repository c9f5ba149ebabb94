"""Check of guards against the removals of a pass: a function of counts of messages or rows, exact in integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from retention.core.json_object import JsonObject
from retention.core.removal_guards import GuardAction, GuardLimit, RemovalGuards
from retention.core.units import format_size
from retention.core.wording import counted

MAX_REMOVED_SHARE = "max_removed_share"
MAX_REMOVED_BYTES = "max_removed_bytes"
MIN_KEPT_MESSAGES = "min_kept_messages"
MIN_KEPT_ROWS = "min_kept_rows"
Unit = Literal["message", "row"]
"""The noun for what a pass removes: of streams and topics messages, of tables rows."""
_MIN_KEPT: dict[Unit, str] = {"message": MIN_KEPT_MESSAGES, "row": MIN_KEPT_ROWS}


@dataclass(frozen=True)
class Loss:
    """The loss of a stream or table to limits in one pass; messages released by consumers are not part of it."""

    messages: int = 0
    """Messages removed by limits."""
    bytes: int = 0
    """Bytes of these messages, by the broker's accounting."""
    of_messages: int = 0
    """Messages of the stream, without those released by consumers in the pass; at least `messages`."""
    unit: Unit = "message"
    """`row`: all these numbers are of rows."""

    @property
    def kept(self) -> int:
        """Messages that remain after the pass."""
        return self.of_messages - self.messages


@dataclass(frozen=True)
class GuardFinding:
    """A guard that a pass exceeds."""

    guard: str
    """The name of its key."""
    limit: int
    """Percent, bytes or messages, in the unit of the guard."""
    then: GuardAction
    removed_messages: int
    removed_bytes: int
    of_messages: int
    """Messages of the stream, without those released by consumers in the pass."""
    lifted: bool = False
    """Whether a guard that refuses was lifted for this one pass."""
    unit: Unit = "message"
    """`row`: all these numbers are of rows."""

    @property
    def refuses(self) -> bool:
        """Whether the pass must not be applied."""
        return self.then == "refuse" and not self.lifted

    @property
    def sentence(self) -> str:
        """The compared numbers, as the predicate of a sentence about the pass."""
        return _SENTENCES[self.guard](self)

    def as_json(self) -> JsonObject:
        """The finding as JSON values, with its sentence."""
        entry = asdict(self) | {"sentence": self.sentence}
        unit = entry.pop("unit")
        return {name.replace("messages", f"{unit}s"): value for name, value in entry.items()}


def guard_findings(guards: RemovalGuards, loss: Loss) -> tuple[GuardFinding, ...]:
    """List the guards that a loss exceeds; none if nothing is lost, even in a small stream.

    A loss of 51 of 100 messages exceeds a share of 50%, one of 50 does not; 51 of 100 leave 49, which is below 50.

    Args:
        guards: the guards of the stream.
        loss: the removals by limits in the pass.
    """
    if not loss.messages:
        return ()
    exceeded = (
        (MAX_REMOVED_SHARE, guards.max_removed_share, _exceeds_share),
        (MAX_REMOVED_BYTES, guards.max_removed_bytes, _exceeds_bytes),
        (_MIN_KEPT[loss.unit], guards.min_kept_messages, _leaves_too_few),
    )
    return tuple(
        _finding(name, guard, loss)
        for name, guard, exceeds in exceeded
        if guard is not None and exceeds(guard.limit, loss)
    )


def _exceeds_share(percent: int, loss: Loss) -> bool:
    return loss.messages * 100 > percent * loss.of_messages


def _exceeds_bytes(limit: int, loss: Loss) -> bool:
    return loss.bytes > limit


def _leaves_too_few(minimum: int, loss: Loss) -> bool:
    return loss.kept < minimum


def _finding(name: str, guard: GuardLimit, loss: Loss) -> GuardFinding:
    removed = (loss.messages, loss.bytes, loss.of_messages)
    return GuardFinding(name, guard.limit, guard.then, *removed, unit=loss.unit)


def _share_sentence(finding: GuardFinding) -> str:
    # Rounded up, so that a share beyond the limit never appears to meet it.
    tenths = -(-finding.removed_messages * 1000 // finding.of_messages)
    percent = f"{tenths // 10}.{tenths % 10}".removesuffix(".0")
    removed = (
        f"{finding.removed_messages:,} of {counted(finding.of_messages, finding.unit)} ({percent}%)"
    )
    return f"removes {removed}, more than {MAX_REMOVED_SHARE} {finding.limit}%"


def _bytes_sentence(finding: GuardFinding) -> str:
    removed, limit = (
        f"{format_size(size)} ({counted(size, 'byte')})"
        for size in (finding.removed_bytes, finding.limit)
    )
    return f"removes {removed}, more than {MAX_REMOVED_BYTES} {limit}"


def _kept_sentence(finding: GuardFinding) -> str:
    kept = finding.of_messages - finding.removed_messages
    stays = f"keeps {kept:,} of {counted(finding.of_messages, finding.unit)}"
    return f"{stays}, fewer than {finding.guard} {finding.limit:,}"


_SENTENCES: dict[str, Callable[[GuardFinding], str]] = {
    MAX_REMOVED_SHARE: _share_sentence,
    MAX_REMOVED_BYTES: _bytes_sentence,
    MIN_KEPT_MESSAGES: _kept_sentence,
    MIN_KEPT_ROWS: _kept_sentence,
}
