"""Legal holds as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from retention.core.wording import counted
from retention.views.wording import brief_instant

if TYPE_CHECKING:
    from retention.stores.holds import Hold


def holds_clause(holds: Sequence[Hold]) -> str:
    """The clause for the legal holds in effect, for a state; empty for none."""
    return f"; {counted(len(holds), 'legal hold')}" if holds else ""


def kept_text(kept: Mapping[str, int] | None) -> Iterator[str]:
    """The messages that legal holds keep, a sentence for each that keeps some."""
    for hold, messages in (kept or {}).items():
        if messages:
            yield f"legal hold {hold} keeps {counted(messages, 'message')}"


def expired_text(expired: Sequence[str] | None) -> Iterator[str]:
    """The legal holds that a run is the first to ignore, a sentence each."""
    for hold in expired or ():
        yield f"legal hold {hold} has expired: this run is the first that ignores it"


def scope_of(hold: Hold) -> str:
    """The messages that a legal hold covers, in words."""
    parts = [] if hold.subject is None else [f"subject {hold.subject}"]
    if hold.ranges is not None:
        first, last = int(hold.ranges[0, 0]), int(hold.ranges[-1, 1])
        among = f" ({len(hold.ranges):,} ranges)" if len(hold.ranges) > 1 else ""
        parts.append(f"sequences {first:,} to {last:,}{among}")
    if hold.from_ns is not None:
        parts.append(f"stored since {brief_instant(hold.from_ns)}")
    if hold.to_ns is not None:
        parts.append(f"stored before {brief_instant(hold.to_ns)}")
    return ", ".join(parts) or "everything"


def hold_row(hold: Hold) -> tuple[str, ...]:
    """The columns of a legal hold in a list."""
    until = "its release" if hold.until_ns is None else brief_instant(hold.until_ns)
    if hold.end is not None:
        until = f"{hold.end.kind} {brief_instant(hold.end.at_ns)}: {hold.end.reason}"
    return hold.stream, hold.id, scope_of(hold), until, hold.owner or "", hold.reason
