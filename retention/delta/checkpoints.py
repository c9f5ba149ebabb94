"""Checkpoints of a Delta log, read in columns: classic, of several parts, and V2 with sidecars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from retention.delta import entries, log_files
from retention.delta.entries import Action
from retention.delta.file_actions import live_of, parse_entries
from retention.delta.shapes import LIVE_FILES, OF_ADD, STATS_PARSED
from retention.errors import DamagedError, RetentionError
from retention.storage import files
from retention.storage.errors import first_line, is_of_storage, storage_error
from retention.storage.parallel import in_threads
from retention.storage.tables import in_memory

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_OF_TABLE = ("metaData", "protocol", "txn", "domainMetadata")
_SIDECAR = "sidecar"
_WANTED = (*_OF_TABLE, _SIDECAR, *(f"add.{name}" for name in OF_ADD.values()))
_FEW_ROWS = 2_000
"""The rows up to which handing columns to threads costs more than reading them."""

_BATCH_ROWS = 1 << 16
"""Rows decoded at a time: the columns of a large file are not held encoded beside their values."""
_BUFFER_BYTES = 1 << 20
_MOST_GAPS = 8
"""The rows without a file in a batch up to which the rows between them are pieces instead of a copy."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint: live files, and the actions that describe the table."""

    live: pa.Table
    """Shape `LIVE_FILES`; with `stats_parsed` if some files have their statistics only there."""
    others: list[Action]


def read_checkpoint(root: str, names: Sequence[str]) -> Checkpoint:
    """Read the files of one checkpoint, and its sidecars.

    Args:
        root: the table's location.
        names: the checkpoint's file names, all of them.

    Raises:
        DamagedError: a file of it is missing or cannot be read.
        StorageError: the storage failed.
    """
    places = [log_files.checkpoint_place(root, name) for name in names]
    tops = list(_read_all(places))
    others = [action for top in tops for action in top.others]
    sidecars = [
        log_files.sidecar_place(root, action[_SIDECAR]["path"])
        for action in others
        if action.get(_SIDECAR)
    ]
    parts = [*tops, *_read_all(sidecars)]
    if len(parts) == 1:
        return Checkpoint(parts[0].live, others)
    live = pa.concat_tables([part.live for part in parts], promote_options="permissive")
    return Checkpoint(live, others)


def _read_all(places: Sequence[str]) -> Iterator[Checkpoint]:
    if not places:
        return iter(())
    return in_threads(_read, places, files.read_parallelism(places[0]))


def _read(place: str) -> Checkpoint:
    return _read_parquet(place) if place.endswith(".parquet") else _read_json(place)


def _read_json(place: str) -> Checkpoint:
    content = files.read_unchanging(place)
    if content is None:
        raise _damaged(place, "it is missing")
    split = entries.split(content, place)
    partitions = entries.partition_names(split.others)
    return Checkpoint(live_of(parse_entries([split], partitions, place)), split.others)


def _read_parquet(place: str) -> Checkpoint:
    """Read a file in pieces; typed statistics are read only if a file has no JSON."""
    adds: list[pa.StructArray] = []
    others: list[Action] = []
    with _reading(place) as opened:
        for batch in _batches(opened, _WANTED):
            adds += _adds_in(batch)
            others += _others_in(batch)
        live = _live_files(adds)
        if live["stats"].null_count and _has_typed(opened):
            batches = _batches(opened, [f"add.{STATS_PARSED}"])
            typed = pa.chunked_array([piece for batch in batches for piece in _adds_in(batch)])
            live = live.append_column(STATS_PARSED, pc.struct_field(typed, STATS_PARSED))
    return Checkpoint(live, others)


def _has_typed(opened: pq.ParquetFile) -> bool:
    leaves = (opened.schema.column(number).path for number in range(len(opened.schema)))
    return any(leaf.startswith(f"add.{STATS_PARSED}.") for leaf in leaves)


def _batches(opened: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file with those of the columns that it has."""
    is_large = opened.metadata.num_rows > _FEW_ROWS
    return opened.iter_batches(_BATCH_ROWS, columns=columns, use_threads=is_large)


def _live_files(pieces: Sequence[pa.StructArray]) -> pa.Table:
    adds = pa.chunked_array(pieces, None if pieces else pa.struct([]))
    fields = dict(zip(adds.type.names, adds.flatten(), strict=True))
    columns = [_column(fields.get(OF_ADD[wanted.name]), wanted.type, adds) for wanted in LIVE_FILES]
    return pa.Table.from_arrays(columns, schema=LIVE_FILES)


def _others_in(batch: pa.RecordBatch) -> list[Action]:
    """The actions of other kinds than those of files."""
    return [
        {kind: _without_nulls(column[at].as_py(maps_as_pydicts="lossy"))}
        for kind, column in zip(batch.schema.names, batch.columns, strict=True)
        if kind != "add" and column.null_count < len(column)
        for at in pc.indices_nonzero(column.is_valid()).to_pylist()
    ]


def _adds_in(batch: pa.RecordBatch) -> list[pa.StructArray]:
    """The rows that add a file: views of them, because the few other rows make few pieces, else a copy."""
    if "add" not in batch.schema.names:
        return []
    adds = batch["add"]
    if adds.null_count > _MOST_GAPS:
        return [adds.drop_null()]
    gaps = pc.indices_nonzero(adds.is_null()).to_pylist()
    bounds = pairwise([-1, *gaps, len(adds)])
    return [adds.slice(gap + 1, end - gap - 1) for gap, end in bounds if end > gap + 1]


def _column(
    column: pa.ChunkedArray | None, wanted: pa.DataType, adds: pa.ChunkedArray
) -> pa.ChunkedArray:
    if column is None:
        return pa.chunked_array([pa.nulls(len(adds), wanted)])
    return column if column.type.equals(wanted) else column.cast(wanted)


def _without_nulls(value: object) -> object:
    """A row of Parquet as an action's fields: absent fields are null there, and missing in JSON."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return value


@contextmanager
def _reading(place: str) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq

    try:
        with files.open_input(place) as source:
            yield pq.ParquetFile(
                in_memory(source),
                coerce_int96_timestamp_unit="us",
                pre_buffer=files.is_remote(place),
                buffer_size=0 if files.is_remote(place) else _BUFFER_BYTES,
            )
    except RetentionError:
        raise
    except FileNotFoundError as error:
        raise _damaged(place, "it is missing") from error
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and is_of_storage(error):
            raise storage_error(place, error) from error
        raise _damaged(place, first_line(error)) from error


def _damaged(place: str, reason: str) -> DamagedError:
    return DamagedError(
        f"{place}: this file of a checkpoint of the table's log cannot be read ({reason}); nothing was changed; "
        "restore it from a copy, or delete the checkpoint if the log has every entry that it replaces"
    )
