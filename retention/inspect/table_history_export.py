"""The run history of a table in place for an auditor: removed rows by file and limit, operators, and later events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from retention.core.json_object import json_value
from retention.core.run_names import started_ns
from retention.core.units import format_duration, format_size
from retention.history.kinds import TableApplied, TableReclaimed, TableRun, TableUndone
from retention.history.record import ABANDONED, BEGUN, RunRecord
from retention.inspect.history_export import UNFINISHED, Period, initiator_columns
from retention.inspect.table_run import action_of
from retention.schemas.history_export import TABLE_HISTORY_EXPORT
from retention.tables.evidence import Evidence, read_evidence
from retention.tables.evidence_extent import losses_of
from retention.tables.opened import OpenedTable
from retention.tables.records import ChangedFile, read_changes


def exported_table_runs(table: OpenedTable, period: Period) -> Iterator[pa.Table]:
    """The runs on a table that began in a period, the oldest first; shape `TABLE_HISTORY_EXPORT`.

    Raises:
        DamagedError: a record or the evidence of a run cannot be read.
    """
    history = table.history
    outcomes = list(history.outcomes())
    undone = {
        record.undoes: record.run
        for record in outcomes
        if isinstance(record, TableUndone) and record.is_done
    }
    begun = (history.begun(run) for run in history.unfinished())
    records = [*outcomes, *(record for record in begun if record is not None)]
    for record in sorted(records, key=attrgetter("run")):
        if period.has(started_ns(record.run, record.as_of_ns)):
            yield _exported(table, record, undone.get(record.run))


def table_history(tables: Sequence[pa.Table]) -> pa.Table:
    """Exported runs as one table; shape `TABLE_HISTORY_EXPORT`."""
    return pa.concat_tables([TABLE_HISTORY_EXPORT.empty_table(), *tables])


def _exported(table: OpenedTable, record: RunRecord, undone_by: str | None) -> pa.Table:
    """The rows of a run, at least one."""
    losses: list[dict[str, Any]] = []
    evidence = "none"
    if isinstance(record, TableApplied) and record.may_count:
        recorded = read_evidence(table, record.run)
        evidence = "files" if recorded is None else recorded.form
        losses = list(_losses(read_changes(table, record.run), recorded))
    run = {
        "table": table.name,
        "run": record.run,
        "kind": record.kind,
        "status": UNFINISHED if record.status == BEGUN else record.status,
        "began": started_ns(record.run, record.as_of_ns),
        "as_of": record.as_of_ns,
        "plan_id": record.plan_id if isinstance(record, TableApplied) else None,
        **initiator_columns(record),
        "reasons": [_reason(limit, record.policy or {}) for limit in record.by_rule],
        **_amounts(record),
        "undoes": record.undoes if isinstance(record, TableUndone) else None,
        "undone_by": undone_by,
        "undone": undone_by and started_ns(undone_by, 0),
        "evidence": None if record.status == BEGUN else evidence,
    }
    return pa.Table.from_pylist([run | loss for loss in losses or [{}]], TABLE_HISTORY_EXPORT)


def _amounts(record: RunRecord) -> dict[str, int]:
    amounts = dict.fromkeys(
        ("removed_rows", "removed_bytes", "restored_rows", "deleted_files", "deleted_file_bytes"), 0
    )
    if record.status in {ABANDONED, BEGUN}:
        return amounts
    if isinstance(record, TableRun):
        amounts |= {"removed_rows": record.removed_rows, "removed_bytes": record.removed_bytes}
    if isinstance(record, TableUndone):
        amounts["restored_rows"] = record.restored_rows
    if isinstance(record, TableReclaimed):
        deleted = record.reclaimed.values()
        amounts["deleted_files"] = sum(each.files for each in deleted)
        amounts["deleted_file_bytes"] = sum(each.bytes for each in deleted)
    return amounts


def _losses(
    changed: Sequence[ChangedFile], evidence: Evidence | None
) -> Iterator[dict[str, object]]:
    """The removals of each limit from each file, by column of `EXPORTED_TABLE_LOSS`."""
    recorded = {} if evidence is None else losses_of(evidence)
    for change in changed:
        file = unquote(change.before["path"])
        for limit, positions in change.rows.items():
            loss = recorded.get((file, limit))
            yield {
                "file": file,
                "file_bytes": change.before["size"],
                "action": action_of(change),
                "rule": limit,
                "rows": _rows_by_log(change.before) if positions is None else len(positions),
            } | ({} if loss is None else _of_evidence(vars(loss)))


def _of_evidence(loss: Mapping[str, Any]) -> dict[str, object]:
    times = {
        name: None if loss[name] is None else str(json_value(loss[name]))
        for name in ("time_min", "time_max")
    }
    return {"rows": loss["rows"], "keys": loss["keys"], **times}


def _rows_by_log(add: Mapping[str, Any]) -> int | None:
    """The live rows of a file by its `add` action; None: it has no statistics."""
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    dead = (add.get("deletionVector") or {}).get("cardinality", 0)
    return None if rows is None else rows - dead


def _reason(limit: str, policy: Mapping[str, Any]) -> str:
    """A limit with its values of that time: the table's, then those of policies."""
    if limit == "expires_at":
        column = (policy.get("columns") or {}).get("expires_at")
        return f"expires_at {'.'.join(column)}" if column else limit
    spell = {"max_age": format_duration, "max_bytes": format_size}.get(limit, "{:,}".format)
    field = "max_age_ns" if limit == "max_age" else limit
    of_policies = (each for each in policy.get("policies", ()) if limit in each["named"])
    limits = (policy.get("limits", {}), *(each["limits"] for each in of_policies))
    values = (each.get(field) for each in limits)
    texts = dict.fromkeys(spell(value) for value in values if value is not None)
    return f"{limit} {' or '.join(texts)}".rstrip()
