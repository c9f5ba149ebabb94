"""The rows of an erasure in files of a table: live ones, those that vectors hide, and those of files that left it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from retention.config.table_types import format_column
from retention.core.members import Members
from retention.core.plain_strings import without_views
from retention.core.table_policy import Column
from retention.delta.log_files import log_directory
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import bitmap_of, positions_of, read_vector
from retention.engine_port import Engine
from retention.erasure.encodings import MIN_BYTES
from retention.errors import DamagedError, StorageError
from retention.planners.table_rows import NarrowFile, key_bytes, read_narrow
from retention.rules.tables.erase import ErasedKeys, columns_of, narrow_name
from retention.storage import files
from retention.tables.bounds import by_path, leaf_of, live_rows
from retention.tables.narrow import NarrowReader
from retention.tables.opened import OpenedTable
from retention.tables.wanted_key import array_of

ChooseEngine = Callable[[int], Engine]
Key = Mapping[Column, str]
"""Column → the value of erased rows, as text."""
_BATCH_ROWS = 1 << 14
_NOTHING = np.zeros(0, np.int64)
_TEXT_TYPES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ErasedFile:
    """A data file with rows of an erasure."""

    add: Mapping[str, Any]
    """Its `add` action; of a file that left the table, as much of it as its path tells."""
    rows: BitMap64
    """The positions of the erasure's rows, also of those that its vector hides."""
    live: int
    """Its live rows; 0 for a file that left the table."""
    hidden: BitMap64
    """The positions that its vector hides."""

    @property
    def path(self) -> str:
        """Its decoded path in the table's directory."""
        return unquote(str(self.add["path"]))

    @property
    def removed(self) -> int:
        """The live rows that go."""
        return len(self.rows - self.hidden)

    @property
    def dead(self) -> BitMap64 | None:
        """The positions of the rows that go; None: no row stays."""
        return None if self.removed == self.live else self.rows


def typed_keys(
    table: OpenedTable, snapshot: DeltaSnapshot, keys: Sequence[Key]
) -> list[ErasedKeys]:
    """Keys in the types of the table's columns, those of the same columns together.

    Raises:
        UsageError: a value is none of its column's type.
        ConfigError: the table does not have a column.
    """
    groups: dict[tuple[Column, ...], list[Key]] = {}
    for key in keys:
        groups.setdefault(tuple(sorted(key)), []).append(key)
    typed = []
    for columns, of_group in groups.items():
        arrays = [
            pa.chunked_array(
                [array_of(table.name, leaf_of(snapshot, column), [key[column] for key in of_group])]
            )
            for column in columns
        ]
        typed.append(ErasedKeys(columns, Members(key_bytes(arrays).combine_chunks())))
    return typed


def live_files(
    snapshot: DeltaSnapshot,
    keys: Sequence[ErasedKeys],
    choose: ChooseEngine,
    among: pa.Array | None = None,
) -> list[ErasedFile]:
    """The live files with rows of an erasure, in order of their paths.

    Args:
        snapshot: the table.
        keys: the erased keys.
        choose: the choice of an engine.
        among: the files to read, by their paths as the log has them; None: all.

    Raises:
        DamagedError, StorageError: a file cannot be read.
    """
    order = by_path(snapshot)
    if among is not None:
        is_one = pc.is_in(snapshot.files["path"], value_set=among).to_numpy()
        order = order[is_one[order]]
    adds, live = snapshot.adds_of(order.tolist()), live_rows(snapshot, order)
    marked = _matching(snapshot, keys, adds, live.tolist(), choose)
    return [
        ErasedFile(add, rows, int(count), read_vector(snapshot.root, add.get("deletionVector")))
        for add, count, rows in zip(adds, live, marked, strict=True)
        if rows
    ]


def former_files(
    snapshot: DeltaSnapshot,
    keys: Sequence[ErasedKeys],
    choose: ChooseEngine,
    among: Iterable[str] | None = None,
) -> list[ErasedFile]:
    """The readable files in the table's directory that have rows of an erasure and are not live.

    Args:
        snapshot: the table.
        keys: the erased keys.
        choose: the choice of an engine.
        among: the files to read, by their decoded paths; None: all.
    """
    live = {unquote(path) for path in snapshot.files["path"].to_pylist()}
    paths = [
        path
        for path in sorted(files.walk(snapshot.root) if among is None else among)
        if path.endswith(".parquet") and path not in live
        if not files.join(snapshot.root, path).startswith(log_directory(snapshot.root))
        if not files.is_special(files.join(snapshot.root, path))
    ]
    former = []
    for path in paths:
        add = {"path": quote(path), "partitionValues": _partition_of(path), "size": 0}
        try:
            [rows] = _matching(snapshot, keys, [add], [0], choose)
        except (DamagedError, StorageError):
            # The search names what nobody can read.
            continue
        if rows:
            former.append(ErasedFile(add, rows, 0, BitMap64()))
    return former


def rows_at(location: str, positions: BitMap64) -> Iterator[pa.Table]:
    """The rows of a file at some positions, in batches.

    Raises:
        FileNotFoundError, OSError, ArrowException: the file is gone, or cannot be read.
    """
    wanted = positions_of(positions)
    for begin, rows in _batches(location):
        first, last = np.searchsorted(wanted, [begin, begin + rows.num_rows])
        if last > first:
            yield rows.take(pa.array(wanted[first:last] - begin))


def live_texts(snapshot: DeltaSnapshot) -> Iterator[pa.Table]:
    """The texts of all live rows and of their partitions: a table of one column for each column of a batch."""
    for add in snapshot.adds_of(range(snapshot.files.num_rows)):
        hidden = positions_of(read_vector(snapshot.root, add.get("deletionVector")))
        location = files.join(snapshot.root, unquote(add["path"]))
        values = [value for value in (add.get("partitionValues") or {}).values() if value]
        yield pa.table({"text": pa.array([value.encode() for value in values], pa.binary())})
        for begin, rows in _batches(location):
            is_live = ~np.isin(np.arange(begin, begin + rows.num_rows), hidden)
            yield from (pa.table({"text": text}) for text in texts_of(rows.filter(is_live)))


def _batches(location: str) -> Iterator[tuple[int, pa.Table]]:
    """The rows of a file, in batches, each with the position of its first row."""
    begin = 0
    with files.reading(location) as source:
        opened = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
        for batch in opened.iter_batches(_BATCH_ROWS):
            yield begin, without_views(pa.Table.from_batches([batch]))
            begin += batch.num_rows


def texts_of(rows: pa.Table) -> Iterator[pa.Array]:
    """The values of every column of text or bytes, at any depth, as bytes."""
    for column in rows.columns:
        for chunk in column.chunks:
            yield from _texts(chunk)


def key_texts(keys: Sequence[Key]) -> tuple[set[str], set[str]]:
    """The values of keys that are long enough to be names by themselves, and all as `column=value`."""
    long = {value for key in keys for value in key.values() if len(value.encode()) >= MIN_BYTES}
    return long, {f"{format_column(c)}={value}" for key in keys for c, value in key.items()}


def _matching(
    snapshot: DeltaSnapshot,
    keys: Sequence[ErasedKeys],
    adds: Sequence[Mapping[str, Any]],
    live: Sequence[int],
    choose: ChooseEngine,
) -> list[BitMap64]:
    """The positions of the erasure's rows in files, whether or not a vector hides them."""
    reader = NarrowReader.of(snapshot, columns_of(keys))
    tasks = [
        replace(reader.task(0, {**add, "deletionVector": None}, count), dead=_NOTHING)
        for add, count in zip(adds, live, strict=True)
    ]
    weights = [task.narrow_bytes for task in tasks]
    marked = (
        choose(sum(weights)).map(partial(_marked, tuple(keys)), tasks, weights) if tasks else ()
    )
    return [BitMap64.deserialize(each) for each in marked]


def _marked(keys: Sequence[ErasedKeys], task: NarrowFile) -> bytes:
    rows, _ = read_narrow(task)
    mask = np.zeros(rows.num_rows, bool)
    for group in keys:
        mask |= group.takes(key_bytes([rows[narrow_name(column)] for column in group.columns]))
    return bitmap_of(rows["row"].to_numpy()[mask]).serialize()


def _texts(values: pa.Array) -> Iterator[pa.Array]:
    kind = values.type
    if pa.types.is_dictionary(kind):
        yield from _texts(values.cast(kind.value_type))
    elif pa.types.is_struct(kind):
        for field in values.flatten():
            yield from _texts(field)
    elif pa.types.is_map(kind):
        yield from _texts(values.keys)
        yield from _texts(values.items)
    elif pa.types.is_nested(kind):
        yield from _texts(values.flatten())
    elif any(is_text(kind) for is_text in _TEXT_TYPES):
        yield values.cast(pa.binary())


def _partition_of(path: str) -> dict[str, str | None]:
    """The values of a file's partition, as directories `column=value` have them."""
    pairs = (name.partition("=") for name in path.split("/")[:-1] if "=" in name)
    return {
        unquote(column): None if value == _NULL else unquote(value) for column, _, value in pairs
    }
