"""A stream's Delta table: creates and opens it, and reads files and counters from its log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import integers_of
from retention.core.counters import Counters
from retention.core.record_tables import first_outside
from retention.core.subjects import TABLES
from retention.delta import entries
from retention.delta import snapshot as snapshots
from retention.delta.entry_put import put_if_absent
from retention.delta.file_actions import any_escaped
from retention.delta.map_values import map_values
from retention.delta.protocol_versions import FEATURE_READER, FEATURE_WRITER
from retention.delta.shapes import LIVE_FILES
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.statistics import LoggedIntegers
from retention.delta.vectors import VECTORS_ENABLED
from retention.errors import DamagedError, RefusedError, UsageError
from retention.ports import VersionToken
from retention.schemas.empty import empty_table
from retention.schemas.files import LOGGED_FILES
from retention.schemas.messages import MESSAGES, PARTITION_COLUMNS
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import as_storage_errors, storage_error
from retention.stores.delta import counters
from retention.stores.delta import log as delta_history
from retention.stores.delta.compatibility import TableRules, examine
from retention.stores.delta.damaged_log import damaged_log
from retention.stores.delta.foreign_writers import TOKEN
from retention.stores.delta.log_diff import logged_rows
from retention.stores.delta.properties import grace_properties
from retention.stores.delta.table_log import exists
from retention.stores.delta.vector_files import path_of
from retention.stores.layout import Layout
from retention.stores.seals import seal_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STATISTICS_COLUMNS = "seq,ts_ns,size,deadline_ns,time"
_FROM_LOG = {
    "messages": ("numRecords",),
    **{
        f"{bound}_{name}": (f"{bound}Values", name)
        for bound in ("min", "max")
        for name in ("seq", "ts_ns", "size")
    },
    **{f"nulls_{name}": ("nullCount", name) for name in ("seq", "subject", "ts_ns", "size")},
}
"""Column → its place in a file's statistics."""
_LEAVES = tuple(_FROM_LOG.values())
_WITHOUT_VECTORS = {"minReaderVersion": 1, "minWriterVersion": 2}
_WITH_VECTORS = {
    "minReaderVersion": FEATURE_READER,
    "minWriterVersion": FEATURE_WRITER,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["appendOnly", "deletionVectors", "invariants"],
}


@dataclass(frozen=True)
class DeltaHandle:
    """One opened version of the table; commits on it are checked against exactly that version."""

    table: DeltaSnapshot
    rules: TableRules
    logged: Counters
    """The counters in the log."""
    vectors: Mapping[str, Mapping[str, Any]]
    """Path of each live file with rows deleted by a deletion vector → the vector's descriptor."""
    unreadable: frozenset[str]
    """Paths of live files with such rows that only Spark can tell."""
    token: VersionToken | None
    """The token of this version; a recreated table reaches the same version with another token."""

    @property
    def table_id(self) -> str:
        """The id that distinguishes this table from one recreated in its place."""
        return str(self.table.metadata["id"])


def create(layout: Layout, grace_ns: int, now_ms: int, *, vectors: bool) -> None:
    """Create the empty table; do nothing if it exists or a rival creates it at the same moment.

    Args:
        layout: the stream's layout.
        grace_ns: the time for which removed files stay.
        now_ms: the wall clock.
        vectors: whether the table has deletion vectors.
    """
    _avoid_percent_signs(layout)
    _uri(layout)
    if not exists(layout):
        token = uuid.uuid4().hex
        first = _first_entry(grace_ns, now_ms, token, vectors=vectors)
        put_if_absent(delta_history.place_of(layout, 0), entries.encode(first), token)
    reached(Step.TABLE_MADE)


def _first_entry(grace_ns: int, now_ms: int, token: str, *, vectors: bool) -> list[entries.Action]:
    from deltalake import Schema

    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(MESSAGES).to_json(),
        "partitionColumns": list(PARTITION_COLUMNS),
        "createdTime": now_ms,
        "configuration": {
            VECTORS_ENABLED: "true" if vectors else "false",
            "delta.dataSkippingStatsColumns": _STATISTICS_COLUMNS,
            **grace_properties(grace_ns),
        },
    }
    created = {
        "timestamp": now_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {"partitionBy": json.dumps(list(PARTITION_COLUMNS))},
        "engineInfo": entries.ENGINE,
        TOKEN: token,
    }
    protocol = _WITH_VECTORS if vectors else _WITHOUT_VECTORS
    return [{"commitInfo": created}, {"protocol": protocol}, {"metaData": metadata}]


def open_table(layout: Layout, before: DeltaSnapshot | None = None) -> DeltaSnapshot:
    """The newest version of the table, with only later entries read if an earlier version is given.

    Raises:
        UsageError: there is none.
        DamagedError: its log cannot be read, or a part of it is lost.
        StorageError: the storage failed.
    """
    try:
        return snapshots.read(layout.messages) if before is None else snapshots.advance(before)
    except (UsageError, DamagedError) as error:
        if exists(layout):
            raise damaged_log(layout, error) from error
        raise UsageError(
            f"{layout.messages}: there is no Delta table; write to stream {layout.stream} first"
        ) from error


def for_deltalake(layout: Layout) -> DeltaTable:
    """The newest version of the table, opened by deltalake for its checkpoints and properties.

    Raises:
        DamagedError: its log cannot be read.
        StorageError: the storage failed.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(_uri(layout), storage_options=_options(layout))
    except OSError as error:
        raise storage_error(layout.messages, error) from error
    except (DeltaError, ValueError) as error:
        raise damaged_log(layout, error) from error


def write_checkpoint(layout: Layout) -> None:
    """Write a checkpoint of the newest version.

    Raises:
        DamagedError, StorageError: as `for_deltalake`.
    """
    from deltalake.exceptions import DeltaError

    table = for_deltalake(layout)
    try:
        table.create_checkpoint()
    except (DeltaError, OSError) as error:
        raise storage_error(layout.messages, error) from error
    reached(Step.CHECKPOINT_WRITTEN)


@dataclass
class OpenedBefore:
    """The parts of an opened version that the next opening of the same table need not read again."""

    table: DeltaSnapshot | None = None
    """The version; None: none was opened, or it is not kept."""
    statistics: LoggedIntegers = field(default_factory=lambda: LoggedIntegers(_LEAVES))


def read_handle(layout: Layout, before: OpenedBefore | None = None) -> tuple[DeltaHandle, pa.Table]:
    """Open the table once; returns the handle and its live files (`LOGGED_FILES` and the log's statistics).

    Args:
        layout: the stream's layout.
        before: the parts of an earlier version, if one was opened.

    Raises:
        RefusedError: the engine cannot safely handle some feature or property of the table.
        DamagedError: its log cannot be read, or a part of it is lost.
    """
    before = before or OpenedBefore()
    table = open_table(layout, before.table)
    rules = examine(layout.stream, table)
    logged = counters.counters(table.transactions)
    live = _live_files(layout, table, before.statistics)
    vectors: dict[str, Mapping[str, Any]] = {}
    unreadable: set[str] = set()
    if rules.may_have_vectors:
        live = _under_vectors(table, live, vectors, unreadable)
    token = delta_history.version_token_of(layout, table.version)
    return DeltaHandle(table, rules, logged, vectors, frozenset(unreadable), token), live


def without_files(handle: DeltaHandle) -> DeltaHandle:
    """The same version without its files, for commits that look at none."""
    table = replace(handle.table, files=empty_table(LIVE_FILES))
    return replace(handle, table=table, vectors={}, unreadable=frozenset())


def next_handle(layout: Layout, handle: DeltaHandle, run: str) -> DeltaHandle | None:
    """The version after a handle's, without its files; None unless it is the newest, and the commit of `run`.

    Args:
        layout: the stream's layout.
        handle: a version, without its files, whose rules allow what the commit did.
        run: the name of a run that only added files.

    Raises:
        DamagedError: the entry cannot be read.
    """
    version = handle.table.version + 1
    entry = delta_history.read_entry(layout, version)
    if entry is None or delta_history.read_entry(layout, version + 1) is not None:
        return None
    with delta_history.damage_named(layout, version):
        if delta_history.run_of(entry) != run:
            return None
    table = snapshots.after_without_files(handle.table, entry)
    logged = counters.counters(table.transactions)
    return replace(handle, table=table, logged=logged, token=VersionToken(version, seal_of(entry)))


def _live_files(layout: Layout, table: DeltaSnapshot, statistics: LoggedIntegers) -> pa.Table:
    try:
        partitions = {
            name: integers_of(
                map_values(table.files["partition_values"], name), LOGGED_FILES.field(name).type
            )
            for name in PARTITION_COLUMNS
        }
    except pa.ArrowException as error:
        raise damaged_log(layout, error) from error
    known = statistics.of(table.files)
    columns = {
        "path": table.files["path"],
        **partitions,
        "file_bytes": table.files["size"],
        "modified_ms": table.files["modification_time"],
        **{name: known[leaf] for name, leaf in _FROM_LOG.items()},
    }
    for wanted in LOGGED_FILES:
        if columns[wanted.name].type != wanted.type:
            columns[wanted.name] = pc.cast(columns[wanted.name], wanted.type)
    path = columns["path"]
    if any_escaped(path):
        columns["path"] = path = pa.array([unquote(uri) for uri in path.to_pylist()])
    outside = first_outside(path)
    if outside is not None:
        raise RefusedError(
            f"stream {layout.stream}: the Delta table refers to {outside}, outside its directory "
            "(as a shallow clone does); nothing was changed; copy the rows into a new stream"
        )
    return pa.table(columns)


def _under_vectors(
    table: DeltaSnapshot,
    live: pa.Table,
    vectors: dict[str, Mapping[str, Any]],
    unreadable: set[str],
) -> pa.Table:
    """Give live files with a vector their path under it, and the statistics of the rows that it leaves.

    Args:
        table: the table.
        live: its files in the same order, with the statistics of all their rows.
        vectors: gets the descriptors, by path.
        unreadable: gets the paths of files under vectors that have no path of their own.
    """
    has_vector = table.files["vector"].is_valid()
    adds = [table.add_of(int(row)) for row in pc.indices_nonzero(has_vector)]
    named = {path: add for add in adds if (path := path_of(add)) is not None}
    vectors |= {path: add["deletionVector"] for path, add in named.items()}
    unreadable |= {unquote(add["path"]) for add in adds if path_of(add) is None}
    if not named:
        return live
    data = pa.array([unquote(add["path"]) for add in named.values()], pa.string())
    others = live.filter(pc.invert(pc.is_in(live["path"], value_set=data)))
    rows = logged_rows(named.values()).select(live.schema.names).cast(live.schema)
    return pa.concat_tables([others, rows])


def _uri(layout: Layout) -> str:
    """The table's location for deltalake; it cannot open a directory with a percent sign in its path."""
    remote = files.is_remote(layout.root)
    place = layout.messages if remote else str(Path(layout.messages).resolve())
    if "%" in place:
        raise UsageError(
            f"{place}: a Delta table cannot lie below a path with a percent sign (deltalake reads it as an "
            f"escape); give the stream {layout.stream} a name of A-Z a-z 0-9 _ -, or move the warehouse"
        )
    return place


def _options(layout: Layout) -> dict[str, str] | None:
    return files.storage_options() if files.is_remote(layout.root) else None


def _avoid_percent_signs(layout: Layout) -> None:
    """Link `messages` to a directory without escapes if the stream's name needs any."""
    root, messages = Path(layout.root), Path(layout.messages)
    if files.is_remote(layout.root) or "%" not in root.name:
        return
    with as_storage_errors(layout.messages):
        if messages.is_symlink():
            return
    table = Path(TABLES, f"{root.name.replace('%', '=')}-{uuid.uuid4().hex[:8]}")
    files.make_directory(str(root.parent / table))
    files.make_directory(str(root))
    with suppress(FileExistsError), as_storage_errors(layout.messages, FileExistsError):
        messages.symlink_to(Path("..", table), target_is_directory=True)
        files.sync_directory(str(root))
        reached(Step.PLACE_LINKED)
        return
    with suppress(OSError):
        (root.parent / table).rmdir()
