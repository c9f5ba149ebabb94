"""Explanations of rows of a table, and the evidence of a run on one, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from retention.core.json_object import json_value
from retention.core.units import format_instant, format_size
from retention.core.wording import counted
from retention.tables.evidence_extent import EvidenceSummary
from retention.tables.explain import LiveRow, TableExplanation
from retention.tables.removals import Removal

_MOST_LINES = 50
"""The rows of a key that the text lists; JSON has all."""


def table_explanation_json(explanation: TableExplanation) -> dict[str, Any]:
    """An explanation as JSON values."""
    key = explanation.key
    return {
        "table": explanation.table,
        "as_of_ns": explanation.as_of_ns,
        "key": None if key is None else _values(key),
        "rows": [
            {
                **vars(row),
                "values": _values(row.values),
                "goes": row.limit is not None,
                "legal_holds": dict(row.legal_holds),
            }
            for row in explanation.rows
        ],
        "removed": [_values(vars(removal)) for removal in explanation.removed],
        "runs_without_evidence": list(explanation.without_evidence),
    }


def table_explanation_text(explanation: TableExplanation) -> list[str]:
    """The lines of an explanation: the rows that the table has, then those that runs removed."""
    lines = [_live_text(row, explanation.as_of_ns) for row in explanation.rows]
    removed = [*map(_removal_text, explanation.removed)]
    going = sum(row.limit is not None for row in explanation.rows)
    subject = explanation.table
    if explanation.key is not None:
        named = ", ".join(f"{name}={value}" for name, value in _values(explanation.key).items())
        subject = f"{subject}, {named}"
    as_of = format_instant(explanation.as_of_ns)
    head = f"{subject}: {counted(len(lines), 'row')}, {going:,} of them removed by a pass as of {as_of}"
    silent = explanation.without_evidence
    return [
        head,
        *_at_most(lines),
        *([f"removed by earlier runs: {len(removed):,}"] if removed else ()),
        *_at_most(removed),
        *(
            [f"without evidence of such keys: {counted(len(silent), 'run')} ({', '.join(silent)})"]
            if silent
            else ()
        ),
    ]


def evidence_text(summary: EvidenceSummary | None) -> str:
    """The sentence on the evidence of a run on a table."""
    if summary is None:
        return "evidence: none, neither keys nor times of the removed rows are recorded"
    of_keys = "" if summary.keys is None else f" of {counted(summary.keys, 'key')}"
    hashed = ", hashed" if summary.form == "hashed" else ""
    lines = [f"{counted(summary.rows, 'row')}{of_keys}{hashed}"] if summary.rows else []
    if summary.files:
        lines.append(
            f"{counted(summary.files, 'file')} that went unread, with {counted(summary.rows_of_files, 'row')}, by the "
            "bounds of their times"
        )
    return f"evidence: {'; '.join(lines) or 'no rows'}"


def _at_most(lines: list[str]) -> Iterator[str]:
    for line in lines[:_MOST_LINES]:
        yield f"  {line}"
    if len(lines) > _MOST_LINES:
        yield f"  and {len(lines) - _MOST_LINES:,} more; --format json lists all"


def _live_text(row: LiveRow, as_of_ns: int) -> str:
    values = ", ".join(f"{name} {_shown(value)}" for name, value in _values(row.values).items())
    policy = "" if row.policy is None else f" (policy {row.policy + 1})"
    return f"{row.file} row {row.row:,} ({values}): {_fate(row, as_of_ns)}{policy}"


def _fate(row: LiveRow, as_of_ns: int) -> str:
    if row.limit is not None:
        due = row.due.get(row.limit)
        return f"removed by {row.limit}" + (
            "" if due is None else f", due since {format_instant(due)}"
        )
    if row.legal_holds:
        covering = (f"legal hold {hold} covers it ({why})" for hold, why in row.legal_holds.items())
        return "; ".join(["kept", *covering])
    by_instant = sorted(row.due.items(), key=itemgetter(1))
    later = [
        f"{limit} removes it at {format_instant(due)}"
        if due > as_of_ns
        else f"due by {limit} since {format_instant(due)}, in a file with rows that stay"
        for limit, due in by_instant
    ]
    later += [_when_newer(limit, count) for limit, count in row.newer.items()]
    notes = [
        *([] if row.has_time else ["it has no time, so no age and no count removes it"]),
        *([] if row.has_key else ["it has no key, so max_rows_per_key does not count it"]),
    ]
    return "; ".join(["kept", *(later or ["no limit removes it"]), *notes])


def _when_newer(limit: str, count: int) -> str:
    if limit == "max_bytes":
        return f"max_bytes removes it when newer rows fill {format_size(count)}"
    rows = counted(count, "newer row")
    if limit == "max_rows_per_key":
        return f"max_rows_per_key removes it after {rows} of its key"
    return f"max_rows removes it when {count:,} newer rows exist"


def _removal_text(removal: Removal) -> str:
    known = {name: json_value(value) for name, value in vars(removal).items()}
    doubt = "" if removal.is_certain else ", if that run committed, which its log no longer tells"
    by = f"removed by {removal.limit} in run {removal.run} as of {format_instant(removal.as_of_ns)}{doubt}"
    back = "" if removal.restored_by is None else f"; restored by run {removal.restored_by}"
    if removal.time is not None:
        times = f" ({known['time']})"
    elif removal.time_min is not None or removal.time_max is not None:
        times = f" (times from {_shown(known['time_min'])} to {_shown(known['time_max'])})"
    else:
        times = ""
    if removal.row is None:
        return (
            f"perhaps rows of {removal.file}{times}, which is deleted: it was {by} as a whole{back}"
        )
    return f"{removal.file} row {removal.row:,}{times}: {by}{back}"


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)


def _values(values: Any) -> dict[str, Any]:
    return {name: json_value(value) for name, value in values.items()}
