"""Reading the report of `jobs/plan.py` that a person has approved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from retention.apply.approval import Approved
from retention.core.outcomes import Outcome
from retention.core.units import format_instant
from retention.errors import UsageError
from retention.history.report import RunReport
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.places import place_of

if TYPE_CHECKING:
    from retention.tables.report import TableReport


def read_approved(path: str) -> tuple[int, dict[str, Approved]]:
    """Read a report of `jobs/plan.py`.

    Returns:
        Its instant, nanoseconds since the epoch, and its plans by stream or table, without failed ones.

    Raises:
        UsageError: there is no such file, or it is not such a report.
    """
    content = files.read_bytes(place_of(path))
    if content is None:
        raise UsageError(f"{path}: there is no such report; name one that jobs/plan.py has written")
    try:
        report = parse_json(content)
        entries = {entry["stream"]: entry for entry in report["streams"]}
        entries |= {entry["table"]: entry for entry in report.get("tables", ())}
        plans = {name: entry for name, entry in entries.items() if "needs_approval" in entry}
        digest = _digest(report)
        approved = {name: _approved(entry, digest) for name, entry in plans.items()}
        return int(report["as_of_ns"]), approved
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{path}: is not a report of plans ({error!r}); name one that jobs/plan.py has written"
        ) from error


def chosen(approved: Mapping[str, Approved], named: Sequence[str]) -> list[str]:
    """The streams and tables to act on: the named ones, or all approved ones.

    Raises:
        UsageError: no plan of a named one was approved, or none at all.
    """
    missing = [name for name in named if name not in approved]
    if missing or not approved:
        raise UsageError(
            f"{', '.join(missing) or 'streams'}: the approved report has no such plan; plan with jobs/plan.py, and "
            "have that report approved"
        )
    return list(named or approved)


def note_late(
    outcomes: Iterable[Outcome[RunReport] | Outcome[TableReport]],
) -> Iterator[str]:
    """A sentence for each stream or table whose approval was spent before, or that a later pass has superseded."""
    for outcome in outcomes:
        report = outcome.value
        if report is not None and report.spent_by is not None:
            yield (
                f"{outcome.stream}: the approved report was applied before, by run {report.spent_by}, which "
                "stands; nothing was removed now"
            )
        if report is not None and report.superseded_by is not None:
            later = format_instant(report.superseded_by["as_of_ns"])
            instant = report.as_of_ns if isinstance(report, RunReport) else report.plan.as_of_ns
            yield (
                f"{outcome.stream}: superseded: this pass is of {format_instant(instant)}, and run "
                f"{report.superseded_by['run']} has applied a later instant ({later}); nothing was removed now"
            )


def _approved(entry: Mapping[str, Any], digest: str) -> Approved:
    by_rule = {str(rule): int(count) for rule, count in entry["by_rule"].items()}
    removed = entry["removed_rows" if "table" in entry else "removed_messages"]
    return Approved(int(removed), int(entry["removed_bytes"]), by_rule, digest)


def _digest(report: Any) -> str:
    """SHA-256 of a report's values, independent of its formatting."""
    return hashlib.sha256(json.dumps(report, sort_keys=True).encode()).hexdigest()
