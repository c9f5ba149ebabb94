"""Columns of a Delta table that others redefined: plans and undos that rest on the earlier ones are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from retention.core.table_policy import Column, TablePolicy
from retention.delta import log_files
from retention.delta import snapshot as delta_log
from retention.delta.schema import columns, leaves, physical_name
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import RefusedError, StalePlanError, UsageError, VerificationError
from retention.history.kinds import TableApplied
from retention.rules.tables.matching import where_columns
from retention.storage import files
from retention.tables.opened import OpenedTable
from retention.tables.plan import TablePlan

Metadata = Mapping[str, Any]
_CONSTRAINT = "delta.constraints."
_NARROWER = {
    "short": ("byte",),
    "integer": ("byte", "short"),
    "long": ("byte", "short", "integer"),
    "double": ("byte", "short", "integer", "float"),
    "timestamp_ntz": ("date",),
}
"""Type → those whose values type widening may have made it of; decimals aside."""


def refuse_stale_columns(plan: TablePlan, current: DeltaSnapshot) -> None:
    """Refuse a plan if a column that its limits read is another one by now, as after a renaming.

    Raises:
        StalePlanError: names the column; or the log no longer tells.
    """
    if not _is_redefined(current, plan.version):
        return
    before = _metadata_at(current.root, plan.version)
    for column in _columns_of(plan.policy):
        if before is None or _leaf(before, column) != _leaf(current.metadata, column):
            raise StalePlanError(
                f"{current.root}: the column {'.'.join(column)} may be another one since the plan was made; nothing "
                "was changed; plan again"
            )


def refuse_redefined(table: OpenedTable, record: TableApplied, current: DeltaSnapshot) -> None:
    """Refuse to restore files whose rows the table would not hold as it is defined now.

    Raises:
        RefusedError: another table is there; or its partitions, types or constraints exclude them, or may.
    """
    intent = table.history.begun(record.run)
    basis = None if intent is None else intent.basis
    if basis is not None and basis.table_id != current.metadata["id"]:
        raise _refused(table, record, "another table is there since then")
    if not _is_redefined(current, record.committed_version):
        return
    before = _metadata_at(current.root, record.committed_version)
    if before is None:
        raise _refused(table, record, "its columns may be others since then")
    for why in _misfits(before, current.metadata):
        raise _refused(table, record, why)


def _refused(table: OpenedTable, record: TableApplied, why: str) -> RefusedError:
    return RefusedError(
        f"{table.location}: {why}, so that the files of run {record.run} do not belong there; nothing was changed; "
        "restore the rows from a copy"
    )


def _is_redefined(current: DeltaSnapshot, version: int) -> bool:
    """Whether an entry after a version has metadata, or is gone and may have had some."""
    for later in range(version + 1, current.version + 1):
        content = files.read_unchanging(log_files.entry_place(current.root, later))
        if content is None or b'"metaData"' in content:
            return True
    return False


def _metadata_at(root: str, version: int) -> Metadata | None:
    """The metadata at a version; None: the log no longer tells."""
    try:
        return delta_log.read(root, version).metadata
    except (UsageError, VerificationError):
        return None


def _columns_of(policy: TablePolicy) -> list[Column]:
    named = policy.columns
    single = (named.time, named.expires_at, named.size)
    others = (*named.key, *named.order, *where_columns(policy))
    return [*(column for column in single if column is not None), *others]


def _leaf(metadata: Metadata, column: Column) -> Any:
    """The physical names and the type of a column; None if there is none."""
    every = leaves(metadata)
    return next(((leaf.physical, leaf.type) for leaf in every if leaf.path == column), None)


def _misfits(before: Metadata, after: Metadata) -> Iterator[str]:
    """The reasons why files of the earlier table are not files of the later one."""
    if _partitions(before) != _partitions(after):
        yield "the table is partitioned by other columns since then"
    for column in _retyped(_types(before), _types(after)):
        yield f"the column {'.'.join(column)} has another type since then"
    for name in _required(after) - _required(before):
        yield f"the column {name} takes no nulls since then"
    for name in dict(_constraints(after) - _constraints(before)):
        yield f"the table has the constraint {name.removeprefix(_CONSTRAINT)} since then"


def _retyped(then: Mapping[Column, str], now: Mapping[Column, str]) -> Iterator[Column]:
    """The columns of the later table that cannot be read from files of the earlier one."""
    for name, kind in now.items():
        is_part = any(name[:depth] in then for depth in range(1, len(name)))
        if is_part or then.get(name, kind) not in (kind, *_NARROWER.get(kind, ())):
            yield name


def _partitions(metadata: Metadata) -> list[str]:
    names = {field["name"]: physical_name(field) for field in columns(metadata)}
    return [names.get(name, name) for name in metadata.get("partitionColumns") or ()]


def _types(metadata: Metadata) -> dict[tuple[str, ...], str]:
    """Physical path → type as text."""
    every = leaves(metadata)
    return {
        leaf.physical: leaf.type if isinstance(leaf.type, str) else json.dumps(leaf.type, sort_keys=True)
        for leaf in every
    }  # fmt: skip


def _constraints(metadata: Metadata) -> set[tuple[str, str]]:
    properties = metadata.get("configuration") or {}
    return {(name, properties[name]) for name in properties if name.startswith(_CONSTRAINT)}


def _required(metadata: Metadata) -> set[str]:
    return {physical_name(field) for field in columns(metadata) if not field.get("nullable", True)}
