"""File actions of a log in columns: the entries become tables, and the last action on each file decides."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.delta.entries import UNPARSED, SplitEntry, damaged_entry
from retention.delta.json_lines import parse_lines
from retention.delta.shapes import LIVE_FILES, OF_ADD, STATS_PARSED, TEXTS, VECTOR
from retention.schemas.empty import empty_table

IS_ADD = "is_add"
FILE_ACTIONS = LIVE_FILES.append(pa.field(IS_ADD, pa.bool_()))
"""`LIVE_FILES` with removals among the rows; a removal has a path and a vector alone."""

_MOST_CHUNKS = 8
_FEW_LINES = 64
"""The number of lines, or paths, up to which Arrow costs more than a look at each."""
_UNUSUAL = (pa.ArrowException, ValueError, TypeError, LookupError, AttributeError, OverflowError)
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
    keys = sorted(partitions)
    if lines <= _FEW_LINES:
        # An unusual entry is left to the other parser, which tells what is wrong with it.
        with suppress(*_UNUSUAL):
            return _from_objects(parts, keys)
    content = b"\n".join([part.content for part in parts])
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
    paths = _decoded(actions["path"].combine_chunks())
    keys = _keys(paths, actions["vector"])
    added = live_of(_last_actions(actions, keys))
    if not live.num_rows:
        return _in_few_chunks(added)
    is_touched = _among(live, paths, keys)
    kept = live.filter(pa.array(~is_touched)) if is_touched.any() else live
    if STATS_PARSED in live.schema.names:
        nothing = pa.nulls(added.num_rows, live.schema.field(STATS_PARSED).type)
        added = added.append_column(STATS_PARSED, nothing)
    return _in_few_chunks(pa.concat_tables([kept, added]))


def _in_few_chunks(live: pa.Table) -> pa.Table:
    """The same files, each column in one chunk once it has many: every commit that is followed adds one."""
    return live.combine_chunks() if live.column(0).num_chunks > _MOST_CHUNKS else live


def live_of(actions: pa.Table) -> pa.Table:
    """The files that actions add, shape `LIVE_FILES`."""
    is_add = actions[IS_ADD]
    adds = actions.filter(is_add) if any(each.false_count for each in is_add.chunks) else actions
    return adds.select(LIVE_FILES.names)


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


def _from_objects(parts: Sequence[SplitEntry], partitions: Sequence[str]) -> pa.Table:
    """The file actions of entries with few lines, parsed one by one.

    Raises:
        one of `_UNUSUAL`: a writer has put them in a way that only a parser of columns accepts, or refuses.
    """
    if any("add" in action or "remove" in action for part in parts for action in part.others):
        raise ValueError("a file action does not begin its line")
    lines = [line for part in parts for line in part.content.split(b"\n")]
    parsed = (_DECODER.decode(line.decode()) for line in lines if line.startswith(UNPARSED))
    rows = [row for action in parsed if (row := _row(action, partitions)) is not None]
    return pa.Table.from_pylist(rows, FILE_ACTIONS)


def _row(action: Mapping[str, Any], partitions: Sequence[str]) -> dict[str, Any] | None:
    """A file action as a row of `FILE_ACTIONS`; None for a file of the change feed."""
    add, remove = action.get("add"), action.get("remove")
    if remove is not None and add is None:
        return {"path": _path(remove), "vector": remove.get("deletionVector"), IS_ADD: False}
    if add is None:
        return None
    values, tags = add.get("partitionValues") or {}, add.get("tags")
    row = {column: add.get(name) for column, name in OF_ADD.items()}
    row["partition_values"] = [(name, values.get(name)) for name in partitions]
    row["tags"] = list(tags.items()) if tags else None
    return row | {"path": _path(add), IS_ADD: True}


def _path(fields: Mapping[str, Any]) -> str:
    path = fields["path"]
    if not isinstance(path, str):
        raise TypeError("a path is not a text")
    return path


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not an integer")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name is there twice")
    return fields


_DECODER = json.JSONDecoder(
    parse_float=_refuse_number, parse_constant=_refuse_number, object_pairs_hook=_distinct
)


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


def _keys(paths: pa.StringArray, vectors: pa.ChunkedArray) -> pa.Array:
    """One text for each file: its decoded path, since writers escape the same one differently, and vector if any."""
    if vectors.null_count == len(vectors):
        return paths
    ids = vector_ids(vectors).combine_chunks()
    named = pc.binary_join_element_wise(paths, ids, "\0")
    return pc.if_else(pc.equal(ids, ""), paths, named)


def any_escaped(paths: pa.Array | pa.ChunkedArray) -> bool:
    """Whether any path has an escaped character."""
    if len(paths) <= _FEW_LINES:
        return any("%" in (path or "") for path in paths.to_pylist())
    return bool(pc.any(pc.match_substring(paths, "%")).as_py())


def _decoded(paths: pa.StringArray) -> pa.StringArray:
    if not any_escaped(paths):
        return paths
    is_escaped = pc.match_substring(paths, "%")
    decoded = [unquote(path) for path in paths.filter(is_escaped).to_pylist()]
    return pc.replace_with_mask(paths, is_escaped, pa.array(decoded, pa.string()))


def _last_actions(actions: pa.Table, keys: pa.Array) -> pa.Table:
    """The last action of each key, in order."""
    distinct = set(keys.to_pylist()) if len(keys) <= _FEW_LINES else pc.unique(keys)
    if len(distinct) == len(keys):
        return actions
    table = pa.table({"key": keys, "at": np.arange(len(keys))})
    is_last = np.zeros(len(keys), bool)
    is_last[table.group_by("key").aggregate([("at", "max")])["at_max"].to_numpy()] = True
    return actions.filter(pa.array(is_last))


def _among(live: pa.Table, paths: pa.StringArray, keys: pa.Array) -> np.ndarray:
    """Whether each live file's path and vector are among the keys, which have these paths."""
    may_be = _may_be(live["path"], paths)
    is_among = may_be.to_numpy().copy()
    candidates = live.select(["path", "vector"]).filter(may_be)
    if candidates.num_rows:
        decoded = _decoded(candidates["path"].combine_chunks())
        named = _keys(decoded, candidates["vector"])
        is_among[is_among] = pc.is_in(named, value_set=keys).to_numpy(zero_copy_only=False)
    return is_among


def _may_be(paths: pa.ChunkedArray, touched: pa.Array) -> pa.ChunkedArray:
    """Whether a path, once decoded, may be among decoded ones; most are sorted out by the file's name alone."""
    may_be = pc.is_in(paths, value_set=touched)
    if not any_escaped(paths):
        return may_be
    is_escaped = pc.match_substring(paths, "%")
    names = _file_names(paths)
    is_named = pc.or_(
        pc.is_in(names, value_set=pc.unique(_file_names(touched))), pc.match_substring(names, "%")
    )
    return pc.or_(may_be, pc.and_(is_escaped, is_named))


def _file_names(paths: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.replace_substring_regex(paths, ".*/", "")
