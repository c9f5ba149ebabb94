"""Checkpoints of a Delta log, read in columns: classic, of several parts, and V2 with sidecars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_STATS = "add.stats"
_OF_TABLE = ("metaData", "protocol", "txn", "domainMetadata")
_SIDECAR = "sidecar"
_FEW_ROWS = 2_000
"""The rows up to which handing columns to threads costs more than reading them."""


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
    with _reading(place) as opened:
        leaves = {opened.schema.column(i).path for i in range(len(opened.schema))}
        groups = range(opened.num_row_groups)
        parts = [_live_files(opened, group, leaves) for group in groups]
        live = pa.concat_tables([LIVE_FILES.empty_table(), *parts], promote_options="permissive")
        kinds = [kind for kind in (*_OF_TABLE, _SIDECAR) if kind in opened.schema_arrow.names]
        table = opened.read(kinds, use_threads=_is_large(opened))
    others = [
        {kind: _without_nulls(fields)}
        for kind in kinds
        for fields in table[kind].drop_null().to_pylist(maps_as_pydicts="lossy")
    ]
    return Checkpoint(live, others)


def _live_files(opened: pq.ParquetFile, group: int, leaves: set[str]) -> pa.Table:
    """The live files of a row group; typed statistics are read only where a file has no JSON."""
    wanted = [f"add.{name}" for name in OF_ADD.values()]
    adds = _adds(opened, group, wanted)
    columns = {
        column: _column(adds, name, LIVE_FILES.field(column).type)
        for column, name in OF_ADD.items()
    }
    live = pa.table(columns, schema=LIVE_FILES)
    has_typed = any(leaf.startswith(f"add.{STATS_PARSED}.") for leaf in leaves)
    if has_typed and live["stats"].null_count:
        typed = _adds(opened, group, [f"add.{STATS_PARSED}"])
        return live.append_column(STATS_PARSED, pc.struct_field(typed, STATS_PARSED))
    return live


def _adds(opened: pq.ParquetFile, group: int, columns: Sequence[str]) -> pa.ChunkedArray:
    table = opened.read_row_group(group, columns=columns, use_threads=_is_large(opened))
    if "add" not in table.column_names:
        return pa.chunked_array([], pa.struct([]))
    return table["add"].drop_null()


def _is_large(opened: pq.ParquetFile) -> bool:
    """Whether threads for the columns of a file cost less than they save."""
    return bool(opened.metadata.num_rows > _FEW_ROWS)


def _column(adds: pa.ChunkedArray, name: str, wanted: pa.DataType) -> pa.ChunkedArray:
    if adds.type.get_field_index(name) < 0:
        return pa.chunked_array([pa.nulls(len(adds), wanted)])
    return pc.struct_field(adds, name).cast(wanted)


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
                source, coerce_int96_timestamp_unit="us", pre_buffer=files.is_remote(place)
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
