"""Rows of a table in place: tasks that read narrow columns of its files, and the rules applied to them.

Rows are decided in this process, or, if they are many and have keys, by tasks that each have all rows of some keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.hash_buckets import hash_buckets
from retention.core.integer_sort import lexsort
from retention.core.labels import labelled
from retention.core.read_count import ReadCount
from retention.core.spans import Array
from retention.core.table_policy import Column
from retention.delta.schema import Path, path_in_file
from retention.engine_port import Engine, Gathering, Part
from retention.errors import DamagedError
from retention.planners.row_parts import SmallRows, rows_of_parts
from retention.rules.tables.matching import group_limits
from retention.rules.tables.rows import COUNTED, DEAD_ROWS, RowNotes, RowRules, dead_rows
from retention.rules.tables.ticks import ticks_of
from retention.storage import files
from retention.storage.errors import first_line, is_of_storage, storage_error

HELD_BYTES = 128 << 20
"""The most bytes of narrow rows with keys to decide in this process."""
BUCKET_BYTES = 32 << 20
"""The approximate bytes of narrow rows in a bucket of keys."""
VALUE_BYTES = 16
"""The approximate bytes of one narrow value."""
TICKS = ("time", "expires_at")
_AFTER_KEYS = COUNTED[1:]
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd number by which to multiply; neighbouring keys get distant buckets."""


@dataclass(frozen=True)
class NarrowColumn:
    """A column that rules read."""

    name: str
    """Its name in narrow rows: a key of `narrow_columns`."""
    path: Column
    """Physical names in data files, from the top level down."""
    type: pa.DataType
    """Arrow's type of the table's column; a file may have a narrower one."""
    ids: tuple[str, ...] = ()
    """Field ids in data files, one a level, if the table maps columns by id."""

    @property
    def narrow_type(self) -> pa.DataType:
        """The type in narrow rows: int64 for times and sizes."""
        return pa.int64() if self.name in (*TICKS, "size") else self.type


@dataclass(frozen=True)
class NarrowFile:
    """A task: the narrow rows of one data file."""

    number: int
    """The place of its path among those of all live files, ascending."""
    location: str
    rows: int
    columns: tuple[NarrowColumn, ...]
    constants: pa.Table
    """One row with the values of those columns that are no columns of the file: partition columns, by narrow name."""
    dead: Array
    """Positions of rows that a deletion vector hides, ascending; int64."""

    @property
    def narrow_bytes(self) -> int:
        """The approximate bytes of its narrow rows."""
        return self.rows * VALUE_BYTES * (2 + len(self.columns))


@dataclass(frozen=True)
class DecidedRows:
    """The decision on the rows of some files."""

    dead: pa.Table
    """Shape `DEAD_ROWS`."""
    notes: RowNotes
    read: ReadCount
    """The files read, and the bytes of their narrow columns as compressed."""


@dataclass(frozen=True)
class _Part:
    """Narrow rows with their rules so far, and counts of the work on them."""

    rows: pa.Table
    notes: RowNotes = field(default_factory=RowNotes)
    read: ReadCount = field(default_factory=ReadCount)

    @classmethod
    def joined(cls, parts: Sequence[_Part]) -> _Part:
        """The rows of several parts, in their order."""
        return cls(
            pa.concat_tables([part.rows for part in parts] or [DEAD_ROWS.empty_table()]),
            sum((part.notes for part in parts), RowNotes()),
            sum((part.read for part in parts), ReadCount()),
        )

    @classmethod
    def unpacked(cls, contents: Sequence[bytes], schema: pa.Schema) -> _Part:
        """The rows of parts that `dealt` made, in their order."""
        rows, counts = rows_of_parts(contents, schema)
        return cls(
            rows,
            sum((RowNotes(**notes) for notes, _ in counts), RowNotes()),
            sum((ReadCount(**read) for _, read in counts), ReadCount()),
        )

    def dealt(self, numbers: Array) -> Iterator[Part]:
        """A part for each number, given the number of each row; the counts are with the first."""
        return SmallRows.of(self.rows).dealt(numbers, [vars(self.notes), vars(self.read)])


@labelled(step="decide rows of a table")
def decide_rows(
    tasks: Sequence[NarrowFile], rules: RowRules, newer_rows: dict[int, int], engine: Engine
) -> DecidedRows:
    """Decide the rows of files that bounds leave open; the same on every engine.

    Args:
        tasks: the files, ascending by number.
        rules: the rules at the instant of the pass.
        newer_rows: as in `FileVerdicts`.
        engine: reads the files.

    Raises:
        DamagedError: a file is missing or cannot be read.
        ConfigError: a value of a policy has another type than its column.
    """
    weights = [task.narrow_bytes for task in tasks]
    has_keys = bool(group_limits(rules.policy, "max_rows_per_key"))
    if has_keys and sum(weights) > HELD_BYTES:
        joined = _shuffled(tasks, weights, rules, engine)
        rows = joined.rows
    else:
        joined = _Part.joined(engine.map(partial(_expired, rules), tasks, weights))
        rows = rules.cut_keys(joined.rows) if tasks else joined.rows
    rows, notes = rules.cut_counts(rows, newer_rows) if rows.num_rows else (rows, RowNotes())
    return DecidedRows(dead_rows(rows), joined.notes + notes, joined.read)


def read_narrow(task: NarrowFile) -> tuple[pa.Table, ReadCount]:
    """Read the narrow rows of a file, without those that its deletion vector hides, and count the bytes read.

    Raises:
        DamagedError: the file is missing or cannot be read.
    """
    wanted = [column for column in task.columns if column.name not in task.constants.schema.names]
    stored, read = _read(task, wanted)
    count = stored.num_rows
    positions = np.arange(count)
    if len(task.dead):
        positions = np.delete(positions, task.dead)
    is_live = len(positions) < count
    rows: dict[str, pa.Array | pa.ChunkedArray] = {
        "file": pa.array(np.full(len(positions), task.number)),
        "row": pa.array(positions),
    }
    for column in task.columns:
        if column.name in task.constants.schema.names:
            value = task.constants[column.name].combine_chunks()
            values = _narrow(value, column).take(pa.array(np.zeros(len(positions), np.int64)))
        else:
            values = _narrow(stored[column.name].combine_chunks(), column)
            values = values.take(pa.array(positions)) if is_live else values
        rows[column.name] = values
    return pa.table(rows), read


def matching_rows(values: Mapping[str, pa.Scalar], task: NarrowFile) -> pa.Table:
    """The narrow rows of a file with these values.

    Raises:
        DamagedError: as `read_narrow`.
    """
    rows, _ = read_narrow(task)
    for name, value in values.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


@dataclass(frozen=True)
class _DealKeys:
    """A function that partitions the rows of a file into buckets of keys."""

    rules: RowRules
    buckets: int

    def __call__(self, task: NarrowFile) -> Iterator[Part]:
        part = _expired(self.rules, task)
        return part.dealt(_bucket_of_rows(part.rows, self.buckets))


@dataclass(frozen=True)
class _CutBucket:
    """A function that decides the rows of a bucket of keys, and partitions them into ranges of files."""

    rules: RowRules
    schema: pa.Schema
    range_of_file: Array

    def __call__(self, bucket: int, contents: Sequence[bytes]) -> Iterator[Part]:
        del bucket
        part = _Part.unpacked(contents, self.schema)
        cut = self.rules.undecided(self.rules.cut_keys(part.rows), _AFTER_KEYS)
        cut = cut.select(self.cut_schema.names)
        return replace(part, rows=cut).dealt(self.range_of_file[cut["file"].to_numpy()])

    @property
    def cut_schema(self) -> pa.Schema:
        """The columns of which later limits have need, and those of dead rows."""
        if not any(group_limits(self.rules.policy, limit) for limit in _AFTER_KEYS):
            return DEAD_ROWS
        return pa.schema([field for field in self.schema if not field.name.startswith("key_")])


@dataclass(frozen=True)
class _GatherRange:
    """A function that collects the rows of a range of files, in order of files and rows, as one part."""

    schema: pa.Schema

    def __call__(self, number: int, contents: Sequence[bytes]) -> bytes:
        del number
        part = _Part.unpacked(contents, self.schema)
        places = [part.rows[name].to_numpy() for name in ("row", "file")]
        rows = part.rows.take(pa.array(lexsort(places, part.rows.num_rows)))
        [(_, packed)] = replace(part, rows=rows).dealt(np.zeros(rows.num_rows, np.int64))
        return packed


def _shuffled(
    tasks: Sequence[NarrowFile], weights: Sequence[int], rules: RowRules, engine: Engine
) -> _Part:
    """The rows that go by age or by key, or that later limits may remove, in order of files and rows.

    Tasks answer with parts: a driver receives few bytes a row.
    """
    buckets = -(-sum(weights) // BUCKET_BYTES)
    range_of_file = np.zeros(tasks[-1].number + 1, np.int64)
    range_of_file[[task.number for task in tasks]] = (np.cumsum(weights) - 1) // BUCKET_BYTES
    cut = _CutBucket(rules, _decided_schema(tasks[0].columns), range_of_file)
    ranges = engine.shuffle(
        _DealKeys(rules, buckets),
        tasks,
        weights,
        Gathering(cut, buckets),
        Gathering(_GatherRange(cut.cut_schema), int(range_of_file.max()) + 1),
    )
    return _Part.unpacked(ranges, cut.cut_schema)


def _decided_schema(columns: Sequence[NarrowColumn]) -> pa.Schema:
    """The shape of narrow rows with the rules so far."""
    place, rule = (
        [("file", pa.int64()), ("row", pa.int64())],
        [("policy", pa.int64()), ("rule", pa.int8())],
    )
    return pa.schema([*place, *((each.name, each.narrow_type) for each in columns), *rule])


def _expired(rules: RowRules, task: NarrowFile) -> _Part:
    """The rows of a file that go by age, or that a count may remove."""
    stored, read = read_narrow(task)
    rows, notes = rules.expire(stored)
    return _Part(rules.undecided(rows, COUNTED), notes, read)


def _bucket_of_rows(rows: pa.Table, buckets: int) -> Array:
    """The bucket of each row by its key, the same in every process; rows without a key are spread."""
    columns = [rows[name] for name in rows.schema.names if name.startswith("key_")]
    if all(pa.types.is_integer(values.type) for values in columns):
        return _bucket_of_integers(columns, rows["row"], buckets)
    texts = [key_text(values) for values in columns]
    keys = pc.binary_join_element_wise(*texts, pa.scalar(b"\0", pa.binary()))
    return hash_buckets(pc.coalesce(keys, key_text(rows["row"])), buckets)


def _bucket_of_integers(
    columns: Sequence[pa.ChunkedArray], places: pa.ChunkedArray, buckets: int
) -> Array:
    """The same for keys of integers; some of them have null, then the row's place is its key."""
    mixed = np.zeros(len(places), np.uint64)
    for values in columns:
        known = pc.coalesce(values.cast(pa.int64()), places)
        mixed = (mixed ^ known.to_numpy().view(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(32)
    return mixed % np.uint64(buckets)


def key_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as bytes, equal for equal values."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    if not pa.types.is_binary(values.type):
        values = values.cast(pa.string())
    return values.cast(pa.binary())


def key_bytes(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """The key of each row as bytes, different for different keys; null where a column is null: there is no key."""
    texts = [key_text(values) for values in columns]
    lengths = [pc.binary_length(text).cast(pa.string()).cast(pa.binary()) for text in texts]
    parts = [part for pair in zip(lengths, texts, strict=True) for part in pair]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"\0", pa.binary()))


def _read(task: NarrowFile, wanted: Sequence[NarrowColumn]) -> tuple[pa.Table, ReadCount]:
    """Columns of a file in its own types by their narrow names, null if the file does not have them; the bytes read."""
    try:
        with files.open_input(task.location) as source:
            opened = pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit="us")
            schema = opened.schema_arrow
            paths = {each.name: path_in_file(schema, each.path, each.ids) for each in wanted}
            names = [".".join(path) for path in paths.values() if path]
            # Engines run as many tasks as there are processors.
            stored, rows = opened.read(columns=names, use_threads=False), opened.metadata.num_rows
            columns = [_leaf(stored, path, rows) for path in paths.values()]
            # Each table has a column, so that it has the file's rows without any other.
            table = pa.table([pa.nulls(rows), *columns], names=["", *paths])
            return table, ReadCount(1, _bytes_of(opened, names))
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and is_of_storage(error):
            raise storage_error(task.location, error) from error
        why = "it is missing" if isinstance(error, FileNotFoundError) else first_line(error)
        raise DamagedError(
            f"{task.location}: cannot be read as a data file of the table ({why}); nothing was changed; restore that "
            "file from a copy"
        ) from error


def _bytes_of(opened: pq.ParquetFile, names: Sequence[str]) -> int:
    groups = (opened.metadata.row_group(number) for number in range(opened.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in names)


def _leaf(stored: pa.Table, path: Path | None, rows: int) -> pa.Array:
    """The values of a column, or of a field in structs; nulls if the file does not have it."""
    if path is None:
        return pa.nulls(rows)
    values = stored[path[0]].combine_chunks()
    for name in path[1:]:
        values = pc.struct_field(values, name)
    return values


def _narrow(values: pa.Array, column: NarrowColumn) -> pa.Array:
    """Values of a file in the type of narrow rows."""
    if pa.types.is_null(values.type) or column.name not in TICKS:
        return values.cast(column.narrow_type)
    if pa.types.is_date32(values.type) and pa.types.is_timestamp(column.type):
        values = values.cast(pa.timestamp("us"))
    return ticks_of(values)
