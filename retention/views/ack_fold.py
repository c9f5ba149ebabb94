"""Views of folded ack logs, as text and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.ack_fold import FoldReport
from retention.core.json_object import JsonObject
from retention.core.wording import counted
from retention.interest.ack_fold import FoldedLog

MOST_RANGES = 1000
"""The maximum number of gaps listed per consumer."""
_MOST_SHOWN = 5


def folded_entry(folded: FoldedLog) -> JsonObject:
    """A folded log as JSON values."""
    return {
        "stream": folded.stream,
        "log": folded.log,
        "rows": folded.rows,
        "before": folded.before,
        "consumers": {name: _entry(report) for name, report in folded.consumers.items()},
        "malformed": [vars(kind) for kind in folded.malformed],
        "unknown_consumers": dict(folded.unknown_consumers),
        "other_streams": dict(folded.other_streams),
    }


def folded_lines(folded: FoldedLog) -> Iterator[str]:
    """A folded log as lines of text."""
    new = folded.rows - folded.before
    yield f"{folded.stream}: {counted(new, 'line')} of {folded.log} folded, {folded.before:,} before"
    for name, report in folded.consumers.items():
        yield f"  {name}: {_counts(report)}"
        if report.missing.num_rows:
            shown = ", ".join(f"{low}-{high}" for low, high in _ranges(report, _MOST_SHOWN))
            more = ", …" if report.missing.num_rows > _MOST_SHOWN else ""
            yield f"    no line reports {counted(_missing(report), 'delivery', 'deliveries')}: {shown}{more}"
    for kind in folded.malformed:
        yield f"  {counted(kind.count, 'malformed line')}: a reply {kind.why}, such as {kind.example!r}"
    yield from _strangers("of unknown consumers", folded.unknown_consumers)
    yield from _strangers("of other streams", folded.other_streams)


def _entry(report: FoldReport) -> JsonObject:
    return {
        **{name: value for name, value in vars(report).items() if name != "missing"},
        "missing": _missing(report),
        "missing_ranges": _ranges(report, MOST_RANGES),
    }


def _counts(report: FoldReport) -> str:
    counts = {
        "settle": report.settling,
        "request it again": report.naks,
        "mean nothing": report.unknown_bodies,
        "have numbers below 1": report.beyond,
        "name undelivered messages": report.undelivered,
    }
    parts = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    return f"{counted(report.lines, 'line')}" + (f": {parts}" if parts else "")


def _missing(report: FoldReport) -> int:
    lengths = pc.subtract(report.missing["last"], report.missing["first"])
    return (pc.sum(lengths).as_py() or 0) + report.missing.num_rows


def _ranges(report: FoldReport, count: int) -> list[list[int]]:
    first: pa.Table = report.missing.slice(0, count)
    return [[row["first"], row["last"]] for row in first.to_pylist()]


def _strangers(what: str, lines: Mapping[str, int]) -> Iterator[str]:
    if lines:
        yield f"  {counted(sum(lines.values()), 'line')} {what}: {', '.join(list(lines)[:_MOST_SHOWN])}"
