"""File actions of a log in columns: the entries become tables, and the last action on each file decides."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.delta.entries import SplitEntry, damaged_entry
from retention.delta.json_lines import parse_lines
from retention.delta.shapes import LIVE_FILES, OF_ADD, STATS_PARSED, TEXTS, VECTOR
from retention.schemas.empty import empty_table

IS_ADD = "is_add"
FILE_ACTIONS = LIVE_FILES.append(pa.field(IS_ADD, pa.bool_()))
"""`LIVE_FILES` with removals among the rows; a removal has a path and a vector alone."""

_MOST_CHUNKS = 8
_BLOCK_BYTES = 1 << 24
_TAGGED = re.compile(rb'"tags"\s*:\s*\{\s*"')
_REMOVE = pa.struct({"path": pa.string(), "deletionVector": VECTOR})


def parse_entries(parts: Sequence[SplitEntry], partitions: Collection[str], place: str) -> pa.Table:
    """The file actions of one or several entries, in order, shape `FILE_ACTIONS`.

    Args:
        parts: the entries; their other actions are ignored.
        partitions: the physical names of the table's partition columns; values of other names are ignored.
        place: the location that an error names.

    Raises:
        DamagedError: a file action cannot be read.
    """
    lines = sum(part.lines for part in parts)
    if not lines:
        return empty_table(FILE_ACTIONS)
    keys, content = sorted(partitions), b"\n".join([part.content for part in parts])
    schema = pa.schema({"add": _add_type(keys), "remove": _REMOVE})
    block_bytes = max(_BLOCK_BYTES, 2 * max(part.longest for part in parts))
    try:
        parsed = parse_lines(pa.py_buffer(content), schema, block_bytes)
    except pa.ArrowException as error:
        raise damaged_entry(place, str(error)) from error
    if parsed.num_rows != lines:
        raise damaged_entry(place, "a line has more than one action")
    rows = pa.Table.from_batches([_as_rows(b, keys) for b in parsed.to_batches()], FILE_ACTIONS)
    if _TAGGED.search(content):
        rows = _with_tags(rows, [line for line in content.split(b"\n") if line.strip()])
    is_file = pc.or_(parsed["add"].is_valid(), parsed["remove"].is_valid())
    rows = rows.filter(is_file)
    if rows["path"].null_count:
        raise damaged_entry(place, "a file action has no path")
    return rows


def reconcile(live: pa.Table, actions: pa.Table) -> pa.Table:
    """The live files after actions in order: the last action on each pair of path and vector counts.

    Args:
        live: the files before, shape `LIVE_FILES`, or with `stats_parsed`, too.
        actions: shape `FILE_ACTIONS`.
    """
    if not actions.num_rows:
        return live
    keys = _keys(actions)
    last = _last_of_each(keys)
    is_last = np.zeros(actions.num_rows, bool)
    is_last[last] = True
    added = live_of(actions.filter(pa.array(is_last)))
    kept = live.filter(pa.array(~_among(live, keys)))
    if STATS_PARSED in live.column_names:
        nothing = pa.nulls(added.num_rows, live.schema.field(STATS_PARSED).type)
        added = added.append_column(STATS_PARSED, nothing)
    return _in_few_chunks(pa.concat_tables([kept, added]))


def _in_few_chunks(live: pa.Table) -> pa.Table:
    """The same files, each column in one chunk once it has many: every commit that is followed adds one."""
    return live.combine_chunks() if live.column(0).num_chunks > _MOST_CHUNKS else live


def live_of(actions: pa.Table) -> pa.Table:
    """The files that actions add, shape `LIVE_FILES`."""
    return actions.filter(actions[IS_ADD]).select(LIVE_FILES.names)


def vector_ids(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The identity of each vector as `entries.vector_id`; empty for a file without one."""
    if vectors.null_count == len(vectors):
        return pa.chunked_array([pa.repeat("", len(vectors))])
    offset = pc.cast(pc.struct_field(vectors, "offset"), pa.string())
    at = pc.fill_null(pc.binary_join_element_wise("@", offset, ""), "")
    named = pc.binary_join_element_wise(
        pc.struct_field(vectors, "storageType"), pc.struct_field(vectors, "pathOrInlineDv"), at, ""
    )
    return pc.fill_null(named, "")


def live_vectors(live: pa.Table, paths: Collection[str]) -> dict[str, set[str]]:
    """Decoded path → the identities of the vectors with which it is live: none if it is not, "" without a vector."""
    vectors: dict[str, set[str]] = {path: set() for path in paths}
    files = live.select(["path", "vector"])
    files = files.filter(_may_be(live["path"], pa.array(list(paths), pa.string())))
    ids = vector_ids(files["vector"]).to_pylist()
    for path, vector in zip(files["path"].to_pylist(), ids, strict=True):
        if unquote(path) in vectors:
            vectors[unquote(path)].add(vector)
    return vectors


def _add_type(partitions: Sequence[str]) -> pa.StructType:
    types = {name: LIVE_FILES.field(column).type for column, name in OF_ADD.items()}
    del types["tags"]
    types["partitionValues"] = pa.struct({name: pa.string() for name in partitions})
    return pa.struct(types)


def _as_rows(batch: pa.RecordBatch, partitions: Sequence[str]) -> pa.RecordBatch:
    add, remove = batch.column("add"), batch.column("remove")
    is_add = add.is_valid()
    columns = {
        column: pc.struct_field(add, name) for column, name in OF_ADD.items() if name != "tags"
    }
    columns["partition_values"] = _as_map(columns["partition_values"], partitions)
    columns["tags"] = pa.nulls(batch.num_rows, TEXTS)
    for column, name in (("path", "path"), ("vector", "deletionVector")):
        columns[column] = pc.if_else(is_add, columns[column], pc.struct_field(remove, name))
    columns[IS_ADD] = is_add
    return pa.RecordBatch.from_arrays(
        [columns[name] for name in FILE_ACTIONS.names], schema=FILE_ACTIONS
    )


def _as_map(values: pa.StructArray, names: Sequence[str]) -> pa.MapArray:
    """Partition values as maps with a key for each partition column."""
    rows, width = len(values), len(names)
    keys = pa.array(list(names), pa.string()).take(pa.array(np.tile(np.arange(width), rows)))
    by_column = pa.concat_arrays(
        [pa.array([], pa.string()), *(pc.struct_field(values, name) for name in names)]
    )
    by_row = np.arange(rows * width).reshape(width, rows).T.ravel()
    offsets = np.arange(rows + 1, dtype=np.int32) * width
    return pa.MapArray.from_arrays(pa.array(offsets), keys, by_column.take(pa.array(by_row)))


def _with_tags(rows: pa.Table, lines: Sequence[bytes]) -> pa.Table:
    """The rows with the tags of their lines; few writers set any, and their keys are not known before."""
    adds = (json.loads(line).get("add") if _TAGGED.search(line) else None for line in lines)
    tags = [list(add["tags"].items()) if add and add.get("tags") else None for add in adds]
    at = FILE_ACTIONS.get_field_index("tags")
    return rows.set_column(at, FILE_ACTIONS.field(at), pa.array(tags, TEXTS))


def _keys(rows: pa.Table) -> pa.Array:
    """One text for each row's path and vector; writers escape the same path differently, so it is decoded."""
    return pc.binary_join_element_wise(
        _decoded(rows["path"].combine_chunks()), vector_ids(rows["vector"]), "\0"
    ).combine_chunks()


def _decoded(paths: pa.StringArray) -> pa.StringArray:
    is_escaped = pc.match_substring(paths, "%")
    if not pc.any(is_escaped).as_py():
        return paths
    decoded = [unquote(path) for path in paths.filter(is_escaped).to_pylist()]
    return pc.replace_with_mask(paths, is_escaped, pa.array(decoded, pa.string()))


def _last_of_each(keys: pa.Array) -> np.ndarray:
    """The index of the last occurrence of each value."""
    if len(pc.unique(keys)) == len(keys):
        return np.arange(len(keys))
    table = pa.table({"key": keys, "at": np.arange(len(keys))})
    return table.group_by("key").aggregate([("at", "max")])["at_max"].to_numpy()


def _among(live: pa.Table, keys: pa.Array) -> np.ndarray:
    """Whether each live file's path and vector are among the keys."""
    touched = pc.unique(pc.list_element(pc.split_pattern(keys, "\0"), 0))
    may_be = _may_be(live["path"], touched)
    is_among = may_be.to_numpy().copy()
    candidates = live.select(["path", "vector"]).filter(may_be)
    if candidates.num_rows:
        is_among[is_among] = pc.is_in(_keys(candidates), value_set=keys).to_numpy(
            zero_copy_only=False
        )
    return is_among


def _may_be(paths: pa.ChunkedArray, touched: pa.Array) -> pa.ChunkedArray:
    """Whether a path, once decoded, may be among decoded ones; most are sorted out by the file's name alone."""
    may_be = pc.is_in(paths, value_set=touched)
    is_escaped = pc.match_substring(paths, "%")
    if not pc.any(is_escaped).as_py():
        return may_be
    names = _file_names(paths)
    is_named = pc.or_(
        pc.is_in(names, value_set=pc.unique(_file_names(touched))), pc.match_substring(names, "%")
    )
    return pc.or_(may_be, pc.and_(is_escaped, is_named))


def _file_names(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.replace_substring_regex(paths, ".*/", "")
