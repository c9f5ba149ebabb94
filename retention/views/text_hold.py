"""Legal holds as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retention.core.units import format_instant
from retention.core.wording import counted
from retention.views.wording import brief_instant

if TYPE_CHECKING:
    from retention.stores.holds import Hold


def holds_clause(holds: Sequence[Hold]) -> str:
    """The clause for the legal holds in effect, for a state; empty for none."""
    pending = sum(hold.line == "pending" for hold in holds)
    deleted = sum(hold.line == "deleted" for hold in holds)
    notes = [
        *([f"{pending:,} pending"] if pending else ()),
        *([f"{deleted:,} in effect though its line is deleted"] if deleted else ()),
    ]
    among = f" ({', '.join(notes)})" if notes else ""
    return f"; {counted(len(holds), 'legal hold')}{among}" if holds else ""


def kept_text(kept: Mapping[str, int] | None, noun: str = "message") -> Iterator[str]:
    """The messages or rows that legal holds keep, a sentence for each that keeps some."""
    for hold, number in (kept or {}).items():
        if number:
            yield f"legal hold {hold} keeps {counted(number, noun)}"


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
    if hold.values is not None:
        parts.append(
            f"rows with {', '.join(f'{name}={text}' for name, text in hold.values.items())}"
        )
    stored = "stored" if hold.time is None else hold.time.column
    if hold.from_ns is not None:
        parts.append(f"{stored} since {brief_instant(hold.from_ns)}")
    if hold.to_ns is not None:
        parts.append(f"{stored} before {brief_instant(hold.to_ns)}")
    return ", ".join(parts) or "everything"


def after_runs_text(hold: Hold) -> Iterator[str]:
    """The runs that may still remove rows which a legal hold covers, a sentence each."""
    for run in hold.after_runs:
        yield f"run {run} was committing and may remove rows that legal hold {hold.id} covers; later runs do not"


def by_whom(initiator: Mapping[str, Any] | None) -> str:
    """The person, and the configuration or the undo, by which a legal hold was placed or ended."""
    known = initiator or {}
    user = f"{known.get('user', 'an unknown user')} on {known.get('host', 'an unknown machine')}"
    through = [
        *([f"by configuration {known['configuration']}"] if "configuration" in known else ()),
        *([f"by the undo of run {known['undoes']}"] if "undoes" in known else ()),
    ]
    return ", ".join([user, *through])


def end_of(hold: Hold) -> str:
    """The end of a legal hold in words: its kind, its time, and who recorded it and why."""
    end = hold.end
    if end is None:
        return "in effect"
    return f"{end.kind} {format_instant(end.at_ns)} by {by_whom(end.initiator)}: {end.reason}"


def hold_row(hold: Hold) -> tuple[str, ...]:
    """The columns of a legal hold in a list."""
    until = "its release" if hold.until_ns is None else brief_instant(hold.until_ns)
    if hold.line is not None:
        until += {"pending": ", pending", "deleted": ", line deleted"}[hold.line]
    if hold.end is not None:
        until = f"{hold.end.kind} {brief_instant(hold.end.at_ns)}: {hold.end.reason}"
    return hold.stream, hold.id, scope_of(hold), until, hold.owner or "", hold.reason
