"""The evidence of a run on a table: keys and times of the rows that it removed, a Parquet file a run.

A file that went unread, because its bounds decided it, has one line with the bounds of its times; reading it only for
its keys would cost what the bounds saved. Every other removed row has a line of its own.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.table_policy import Column, TableColumns
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.statistics import bounds
from retention.errors import DamagedError
from retention.planners.table_rows import key_bytes, read_narrow
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.digesting import DigestingSink
from retention.storage.errors import first_line
from retention.storage.tables import write_parquet
from retention.tables.bounds import in_ticks, leaf_of, of_ticks
from retention.tables.narrow import NarrowReader, shown, shown_name
from retention.tables.opened import OpenedTable
from retention.tables.plan import FileRemovals
from retention.tables.removed_rows import located

_HASH = "key_hash"
_ABOUT = b"retention.evidence"
_SALT_BYTES = 32
_HASH_BYTES = 16
"""Half of the digest: enough to tell keys apart, and random bytes are most of a hashed file."""


@dataclass(frozen=True)
class Evidence:
    """The evidence of a run, as its file says it."""

    form: Literal["keys", "hashed"]
    time: str | None
    """The name of the column with the time of a row; `time_min` and `time_max` bound it in a file that went unread."""
    key: tuple[Column, ...]
    """The columns of the key, each under its `shown_name`; hashed, all of them are in `key_hash`."""
    salt: str | None
    """The digest of the secret with which keys are hashed."""
    rows: pa.Table
    """`file`, `row` (null: all rows of a file that went unread), `rows` (their number), `limit`, times and keys."""

    @property
    def key_names(self) -> list[str]:
        """The columns of `rows` that identify a key; none: the table had no key."""
        if not self.key:
            return []
        return [_HASH] if self.form == "hashed" else [shown_name(each) for each in self.key]


def write_evidence(
    table: OpenedTable, run: str, snapshot: DeltaSnapshot, removals: Sequence[FileRemovals]
) -> str | None:
    """Record keys and times of the rows that a run is about to remove, as configured; durable on return.

    Returns:
        The SHA-256 of the record; None: the table has no evidence.

    Raises:
        DamagedError, StorageError: a file cannot be read, or the record cannot be written.
    """
    columns = table.policy.columns
    if table.evidence == "none" or not (columns.time or columns.key):
        return None
    reader = NarrowReader.of_own(snapshot, _columns(columns))
    salt = _salt(table) if table.evidence == "hashed" else None
    about = {
        "form": table.evidence,
        "time": None if columns.time is None else shown_name(columns.time),
        "key": columns.key,
        "salt": None if salt is None else _digest(salt),
    }
    digest = hashlib.sha256()
    files.make_directory(_directory(table))
    with files.create(evidence_location(table, run)) as sink:
        tables = (_keyed(part, columns, salt) for part in _parts(reader, columns, removals))
        stored = DigestingSink(sink, digest)
        write_parquet(stored, tables, {_ABOUT: json.dumps(about)}, _encodings)
    reached(Step.EVIDENCE_NOTED)
    return digest.hexdigest()


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """The encodings of columns: numbers that hardly ever repeat as differences, all others by a dictionary."""
    numbers = {
        field.name: "DELTA_BINARY_PACKED"
        for field in schema
        if field.name != "rows" and (_is_time(field.type) or pa.types.is_integer(field.type))
    }
    others = [name for name in schema.names if name not in numbers]
    return {"use_dictionary": others, "column_encoding": numbers}


def _is_time(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date32(kind)


def read_evidence(table: OpenedTable, run: str) -> Evidence | None:
    """The evidence of a run; None if it has none.

    Raises:
        DamagedError: it cannot be read.
    """
    location = evidence_location(table, run)
    content = files.read_bytes(location)
    if content is None:
        return None
    try:
        rows = pq.read_table(pa.BufferReader(content))
        about = json.loads(rows.schema.metadata[_ABOUT])
        key = tuple(tuple(column) for column in about["key"])
        plain = rows.replace_schema_metadata(None)
        return Evidence(about["form"], about["time"], key, about["salt"], plain)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise DamagedError(
            f"{location}: the evidence of run {run} cannot be read ({first_line(error)}); nothing was changed; restore "
            "it from a copy of the warehouse"
        ) from error


def of_key(
    table: OpenedTable, evidence: Evidence, key: Mapping[Column, pa.Scalar]
) -> pa.Table | None:
    """The lines of a key: its rows, and files that went unread and may have had some; None if the evidence cannot tell.

    Args:
        table: the table.
        evidence: the evidence of a run.
        key: the value in each column of the key.
    """
    rows = evidence.rows
    unread = pc.is_null(rows["row"])
    if evidence.form == "hashed":
        salt = salt_of(table, evidence)
        if salt is None or tuple(key) != evidence.key:
            return None
        values = [
            pa.chunked_array([pa.array([value.as_py()], value.type)]) for value in key.values()
        ]
        wanted = pc.equal(rows[_HASH], key_hash(salt, values)[0])
        return rows.filter(
            pc.or_(pc.fill_null(wanted, fill_value=False), _unknown(unread, rows, _HASH))
        )
    if not set(key) <= set(evidence.key):
        return None
    mask = pa.chunked_array([pa.repeat(pa.scalar(value=True), rows.num_rows)])
    for column, value in key.items():
        values = rows[shown_name(column)]
        try:
            equal = pc.fill_null(pc.equal(values, value.cast(values.type)), fill_value=False)
        except pa.ArrowException:
            return None
        mask = pc.and_(mask, pc.or_(equal, _unknown(unread, rows, shown_name(column))))
    return rows.filter(mask)


def salt_of(table: OpenedTable, evidence: Evidence) -> bytes | None:
    """The secret with which the keys of some evidence are hashed; None: the table has it no more."""
    salt = files.read_bytes(salt_location(table))
    return None if salt is None or _digest(salt) != evidence.salt else salt


def hash_evidence(
    table: OpenedTable, run: str, evidence: Evidence, names: Mapping[str, str]
) -> None:
    """Replace the keys in the evidence of a run by hashes, as a table with `evidence: hashed` has them.

    Args:
        table: the table.
        run: the run.
        evidence: its evidence.
        names: path of a file → the path that the evidence has from now on; the others stay.
    """
    salt, about = _salt(table), {"form": "hashed", "time": evidence.time, "key": evidence.key}
    paths = [names.get(path, path) for path in evidence.rows["file"].to_pylist()]
    place = evidence.rows.schema.get_field_index("file")
    rows = evidence.rows.set_column(place, "file", pa.array(paths, pa.string()))
    if evidence.form == "keys" and evidence.key:
        hashes = key_hash(salt, [rows[name] for name in evidence.key_names])
        hidden = [name for name in evidence.key_names if name != evidence.time]
        rows = rows.drop_columns(hidden).append_column(_HASH, hashes)
    with files.create(evidence_location(table, run)) as sink:
        described = json.dumps(about | {"salt": _digest(salt)})
        write_parquet(sink, iter([rows]), {_ABOUT: described}, _encodings)
    reached(Step.EVIDENCE_HASHED)


def forget_evidence(table: OpenedTable, run: str) -> None:
    """Delete the evidence of a run that did not commit."""
    files.delete([evidence_location(table, run)])
    reached(Step.STAGED_DISCARDED)


def evidence_location(table: OpenedTable, run: str) -> str:
    """The location of a run's evidence."""
    return files.join(_directory(table), f"{run}.parquet")


def key_hash(salt: bytes, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """The first 16 bytes of HMAC-SHA-256 of each row's key; null where a column is null, so that there is no key."""
    encoded = key_bytes(columns).combine_chunks().dictionary_encode()
    hashes = [
        hmac.digest(salt, key, "sha256")[:_HASH_BYTES] for key in encoded.dictionary.to_pylist()
    ]
    values = pa.array(hashes, pa.binary(_HASH_BYTES))
    return pa.chunked_array([values.take(encoded.indices)])


def _directory(table: OpenedTable) -> str:
    return files.join(table.home, "evidence")


def salt_location(table: OpenedTable) -> str:
    """The location of the secret with which keys are hashed."""
    return files.join(table.home, "salt")


def _salt(table: OpenedTable) -> bytes:
    """The table's secret, made by the first run that hashes keys; the maintenance lease excludes a rival."""
    salt = files.read_bytes(salt_location(table))
    if salt is None:
        salt = secrets.token_bytes(_SALT_BYTES)
        files.make_directory(table.home)
        files.replace(salt_location(table), salt)
    return salt


def _digest(salt: bytes) -> str:
    return hashlib.sha256(salt).hexdigest()[:16]


def _columns(columns: TableColumns) -> dict[str, Column]:
    listed = (columns.time, *columns.key)
    return {shown_name(column): column for column in listed if column is not None}


def _unknown(unread: pa.ChunkedArray, rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A mask of the files that went unread, and whose partition does not tell the value of a column."""
    return pc.and_(unread, pc.is_null(rows[name]))


def _parts(
    reader: NarrowReader, columns: TableColumns, removals: Sequence[FileRemovals]
) -> Iterator[pa.Table]:
    """The lines of a run with all columns of the key: first those of files that went unread, then file by file."""
    paths = set(reader.snapshot.files["path"].to_pylist())
    # A file that is no longer live makes the commit fail.
    live = [each for each in removals if each.add["path"] in paths]
    unread = [each for each in live if None in each.rows.values()]
    yield _of_files(reader, columns, unread)
    for removed in live:
        if None not in removed.rows.values():
            task = reader.task(0, removed.add, removed.live)
            stored, _ = read_narrow(task)
            yield _of_rows(located(stored, task, reader.snapshot.root, removed.rows), columns)


def _of_rows(rows: pa.Table, columns: TableColumns) -> pa.Table:
    """Removed rows with the columns of files that went unread."""
    rows = rows.add_column(2, "rows", pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
    if columns.time is not None:
        kind = rows[shown_name(columns.time)].type
        for name in ("time_min", "time_max"):
            rows = rows.append_column(name, pa.nulls(rows.num_rows, kind))
    return rows


def _of_files(
    reader: NarrowReader, columns: TableColumns, removals: Sequence[FileRemovals]
) -> pa.Table:
    """A line for each file that went unread, with what the log knows of its rows."""
    live = {path: row for row, path in enumerate(reader.snapshot.files["path"].to_pylist())}
    values: dict[str, pa.Array] = {
        "file": pa.array([unquote(each.add["path"]) for each in removals], pa.string()),
        "row": pa.nulls(len(removals), pa.int64()),
        "rows": pa.array([each.live for each in removals], pa.int64()),
        "limit": pa.array([next(iter(each.rows)) for each in removals], pa.string()),
    }
    constants = [reader.constants(each.add) for each in removals]
    for column in reader.columns:
        parts = [each[column.name] for each in constants if column.name in each.schema.names]
        values[shown(column)] = (
            pa.concat_arrays([part.combine_chunks() for part in parts])
            if parts
            else pa.nulls(len(removals), column.type)
        )
    if columns.time is not None:
        numbers = [live[each.add["path"]] for each in removals]
        values |= _bounds_of(reader, columns.time, numbers)
    return pa.table(values)


def _bounds_of(reader: NarrowReader, time: Column, numbers: Sequence[int]) -> dict[str, pa.Array]:
    """The bounds of the times in some files of the snapshot, in the column's own type."""
    snapshot, leaf = reader.snapshot, leaf_of(reader.snapshot, time)
    of_files = replace(snapshot, files=snapshot.files.take(pa.array(numbers, pa.int64())))
    logged = bounds(of_files, leaf.physical, leaf.type)
    [kind] = [column.type for column in reader.columns if shown(column) == shown_name(time)]
    return {
        "time_min": of_ticks(in_ticks(logged.min, leaf.type), kind),
        "time_max": of_ticks(in_ticks(logged.max, leaf.type), kind),
    }


def _keyed(lines: pa.Table, columns: TableColumns, salt: bytes | None) -> pa.Table:
    """Lines with the key as the evidence has it: its columns, or with a salt their hash."""
    names = [shown_name(column) for column in columns.key]
    if salt is None or not names:
        return lines
    hashes = key_hash(salt, [lines[name] for name in names])
    hidden = [name for name in names if columns.time is None or name != shown_name(columns.time)]
    return lines.drop_columns(hidden).append_column(_HASH, hashes)
