"""Reading the report of `jobs/plan.py` that a person has approved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from retention.apply.approval import Approved
from retention.core.outcomes import Outcome
from retention.core.units import format_instant
from retention.errors import UsageError
from retention.history.report import RunReport
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.places import place_of


def read_approved(path: str) -> tuple[int, dict[str, Approved]]:
    """Read a report of `jobs/plan.py`.

    Returns:
        Its instant, nanoseconds since the epoch, and its plans by stream, without failed ones.

    Raises:
        UsageError: there is no such file, or it is not such a report.
    """
    content = files.read_bytes(place_of(path))
    if content is None:
        raise UsageError(f"{path}: there is no such report; name one that jobs/plan.py has written")
    try:
        report = parse_json(content)
        plans = [entry for entry in report["streams"] if "needs_approval" in entry]
        digest = _digest(report)
        approved = {entry["stream"]: _approved(entry, digest) for entry in plans}
        return int(report["as_of_ns"]), approved
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{path}: is not a report of plans ({error!r}); name one that jobs/plan.py has written"
        ) from error


def chosen(approved: Mapping[str, Approved], named: Sequence[str]) -> list[str]:
    """The streams to act on: the named ones, or all approved ones.

    Raises:
        UsageError: no plan of a named stream was approved, or none at all.
    """
    missing = [name for name in named if name not in approved]
    if missing or not approved:
        raise UsageError(
            f"{', '.join(missing) or 'streams'}: the approved report has no such plan; plan with jobs/plan.py, and "
            "have that report approved"
        )
    return list(named or approved)


def note_late(outcomes: Iterable[Outcome[RunReport]]) -> Iterator[str]:
    """A sentence for each stream with an approval that was spent before, or that a later pass has superseded."""
    for outcome in outcomes:
        report = outcome.value
        if report is not None and report.spent_by is not None:
            yield (
                f"{outcome.stream}: the approved report was applied before, by run {report.spent_by}, which "
                "stands; nothing was removed now"
            )
        if report is not None and report.superseded_by is not None:
            later = format_instant(report.superseded_by["as_of_ns"])
            yield (
                f"{outcome.stream}: superseded: this pass is of {format_instant(report.as_of_ns)}, and run "
                f"{report.superseded_by['run']} has applied a later instant ({later}); nothing was removed now"
            )


def _approved(entry: Mapping[str, Any], digest: str) -> Approved:
    by_rule = {str(rule): int(count) for rule, count in entry["by_rule"].items()}
    return Approved(int(entry["removed_messages"]), int(entry["removed_bytes"]), by_rule, digest)


def _digest(report: Any) -> str:
    """SHA-256 of a report's values, independent of its formatting."""
    return hashlib.sha256(json.dumps(report, sort_keys=True).encode()).hexdigest()
