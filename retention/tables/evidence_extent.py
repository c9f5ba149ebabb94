"""The extent of the evidence of a run on a table: rows, keys and times, in sum and by file and limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from retention.tables.evidence import Evidence, read_evidence
from retention.tables.opened import OpenedTable


@dataclass(frozen=True)
class EvidenceSummary:
    """The extent of a run's evidence."""

    form: str
    rows: int
    """The rows with a line of their own."""
    files: int
    """The files that went unread."""
    rows_of_files: int
    keys: int | None
    """The distinct keys among the rows with a line of their own; None: the table has no key."""

    def as_json(self) -> dict[str, Any]:
        """The summary as JSON values."""
        return vars(self)


@dataclass(frozen=True)
class RowLoss:
    """The rows that one limit removed from one file."""

    rows: int
    time_min: Any
    """Like `time_max` a bound of their times, in the column's own type; None: they have none, or it is unknown."""
    time_max: Any
    keys: int | None
    """The distinct keys among them; None: the file went unread, or the table has no key."""


def summary_of(table: OpenedTable, run: str) -> EvidenceSummary | None:
    """The extent of a run's evidence; None if it has none.

    Raises:
        DamagedError: it cannot be read.
    """
    evidence = read_evidence(table, run)
    if evidence is None:
        return None
    lines = evidence.rows
    by_row = lines.filter(pc.is_valid(lines["row"]))
    unread = lines.filter(pc.is_null(lines["row"]))
    return EvidenceSummary(
        evidence.form,
        by_row.num_rows,
        unread.num_rows,
        pc.sum(unread["rows"]).as_py() or 0,
        _keys_by(evidence, []).get((), 0) if evidence.key else None,
    )


def losses_of(evidence: Evidence) -> dict[tuple[str, str], RowLoss]:
    """File and limit → the rows that the limit removed from it."""
    lines, by = evidence.rows, ["file", "limit"]
    if evidence.time is not None:
        for bound in ("time_min", "time_max"):
            at = lines.schema.get_field_index(bound)
            lines = lines.set_column(at, bound, pc.coalesce(lines[bound], lines[evidence.time]))
        bounds = [("time_min", "min"), ("time_max", "max")]
    else:
        bounds = []
    summed = lines.group_by(by).aggregate([("rows", "sum"), ("row", "count"), *bounds])
    keys = _keys_by(evidence, by)
    return {
        (row["file"], row["limit"]): RowLoss(
            row["rows_sum"],
            row.get("time_min_min"),
            row.get("time_max_max"),
            keys.get((row["file"], row["limit"]), 0) if evidence.key and row["row_count"] else None,
        )
        for row in summed.to_pylist()
    }


def _keys_by(evidence: Evidence, by: list[str]) -> dict[tuple[str, ...], int]:
    """Values of some columns → the distinct keys among the rows with a line of their own."""
    names = evidence.key_names
    if not names:
        return {}
    lines = evidence.rows.filter(pc.is_valid(evidence.rows["row"]))
    keys = lines.select([*by, *names]).drop_null().group_by([*by, *names]).aggregate([])
    counts = keys.group_by(by).aggregate([([], "count_all")]).to_pylist()
    return {tuple(row[name] for name in by): row["count_all"] for row in counts}
