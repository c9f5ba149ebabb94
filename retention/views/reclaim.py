"""Views of a reclaim: deleted files, or those due for deletion, by reason, and kept ones, as text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from retention.core.json_object import JsonObject
from retention.core.outcomes import Outcome, failure_entry
from retention.core.units import format_size
from retention.core.wording import counted
from retention.views.text_hold import kept_text
from retention.views.wording import brief_duration

if TYPE_CHECKING:
    from retention.apply.reclaim.report import Amount, ReclaimReport
    from retention.tables.reclaim import TableReclaim

_NOTHING: JsonObject = {
    "stream": None,
    "run": None,
    "done": False,
    "grace_ns": None,
    "files": 0,
    "bytes": 0,
    "by_reason": {},
    "staying": {},
}
_WORDS: Mapping[str, str] = {
    "removed": "removed by runs whose grace period is over",
    "abandoned": "staged by runs that committed nothing",
    "undo_records": "records of runs that can no longer be undone",
    "history": "records of runs older than the kept history",
    "archive": "copies in the archive, kept for the time that is configured",
    "leftovers": "left by killed processes, noted and kept for the grace period",
    "unmarked": "named by no commit, and not marked as ours",
    "unfinished": "named by runs with an unknown outcome",
    "restored": "named again by a later entry of the log",
    "held": "may have what a legal hold covers",
    "gap": "dead, but the log has lost entries younger than the grace period",
    "notes": "notes on deleted files",
    "log": "log entries replaced by a checkpoint or a list",
    "recent": "in a version younger than the grace period",
    "grace": "dead for less than the grace period",
}


def reclaim_text(report: ReclaimReport) -> list[str]:
    """Lines for a stream: its sum, then each reason why files are deleted or kept."""
    total = report.total
    head = f"{counted(total.files, 'file')} ({format_size(total.bytes)})"
    verb = "deleted" if report.is_done else "would delete"
    grace = brief_duration(report.grace_ns)
    return [
        f"{report.stream}: {verb} {head}, grace {grace}"
        if total.files
        else f"{report.stream}: nothing to delete, grace {grace}",
        *(f"  {_line(verb, name, amount)}" for name, amount in report.going.items()),
        *(f"  {_line('kept', name, amount)}" for name, amount in report.staying.items()),
        *(f"  {line}" for line in kept_text(report.kept_by_holds, "file")),
    ]


def reclaim_entry(outcome: Outcome[ReclaimReport]) -> JsonObject:
    """The JSON entry of a stream; every requested stream has one."""
    entry = _NOTHING | (
        failure_entry(outcome) if outcome.value is None else outcome.value.as_json()
    )
    return entry | {"seconds": round(outcome.seconds, 6)}


def table_reclaim_text(report: TableReclaim) -> list[str]:
    """Lines for a table: its sum, then each reason why files that passes removed are kept."""
    verb, grace = "deleted" if report.is_done else "would delete", brief_duration(report.grace_ns)
    size = f"{counted(report.going.files, 'file')} ({format_size(report.going.bytes)})"
    done = f"{verb} {size}" if report.going.files else "nothing to delete"
    return [
        f"{report.table}: {done}, grace {grace}",
        *(f"  {_line('kept', name, amount)}" for name, amount in report.staying.items()),
        *([f"  {_line(verb, 'history', report.history)}"] if report.history.files else []),
    ]


def table_reclaim_entry(outcome: Outcome[TableReclaim]) -> JsonObject:
    """The JSON entry of a table; every requested table has one."""
    from retention.views.json_entries import table_entry

    return table_entry(outcome) | {"seconds": round(outcome.seconds, 6)}


def _line(verb: str, name: str, amount: Amount) -> str:
    size = f"{counted(amount.files, 'file')}, {format_size(amount.bytes)}"
    return f"{verb}: {_WORDS.get(name, name)}: {size}"
