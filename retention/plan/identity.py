"""The identity of a plan: one digest a segment, folded in order, so that whoever wrote its parts does not matter.

SHA-256 of the header, as canonical JSON, and then of the digests of its segments in order of partition and base. The
digest of a segment covers its files with their pins, statistics and actions, what each rule takes of them, and their
parts; rows name files by their place in the segment, and rules by the first eight bytes of the SHA-256 of their names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.plan.rule_rows import rule_numbers
from schemas.plan import PLANNED_FILES, PLANNED_PARTS, PLANNED_RULES, RULE_NAMES

_SEGMENTS_AT_ONCE = 4_096
_TEXTS = ("path", "action")
_NUMBERS = [name for name in PLANNED_FILES.names if name not in _TEXTS]
_RULE_KEYS = np.array(
    [int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") for name in RULE_NAMES],
    dtype="<u8",
).view("<i8")
"""The number that stands for each rule in digests, by its index in `RULE_NAMES`."""


def identity(header: Mapping[str, Any], files: pa.Table, rules: pa.Table, parts: pa.Table) -> str:
    """The identity of a plan, 64 hexadecimal digits.

    Args:
        header: what was decided of the stream as a whole, JSON-able.
        files: what is touched, by partition and segment; shape `PLANNED_FILES`.
        rules: what each rule takes, by file; shape `PLANNED_RULES`.
        parts: what goes of files that do not go whole, by file; shape `PLANNED_PARTS`.
    """
    digest = hashlib.sha256(canonical(header))
    for segment in _segments(files, rules, parts):
        digest.update(segment)
    return digest.hexdigest()


def canonical(value: object) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _segments(files: pa.Table, rules: pa.Table, parts: pa.Table) -> Iterator[bytes]:
    """The digest of each segment, in order."""
    begins = _begins(files)
    for first in range(0, len(begins) - 1, _SEGMENTS_AT_ONCE):
        bounds = begins[first : first + _SEGMENTS_AT_ONCE + 1]
        sources = (
            _file_rows(files, bounds),
            _texts(files, bounds),
            _rows_by_file(rules, PLANNED_RULES, bounds),
            _rows_by_file(parts, PLANNED_PARTS, bounds),
        )
        yield from map(_digest, *(_slices(*source) for source in sources))


def _digest(*contents: memoryview) -> bytes:
    digest = hashlib.sha256()
    for content in contents:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.digest()


def _slices(content: memoryview, offsets: Array) -> Iterator[memoryview]:
    for start, end in pairwise(offsets.tolist()):
        yield content[start:end]


def _begins(files: pa.Table) -> Array:
    """Row numbers where the files of each segment begin, and where those of the last end.

    Files of the segments 1, 1 and 40 have 0, 2 and 3.
    """
    if not files.num_rows:
        return np.zeros(1, dtype=np.int64)
    partition, segment = (files[name].to_numpy() for name in ("partition", "segment"))
    new = (np.diff(partition) != 0) | (np.diff(segment) != 0)
    return np.concatenate([[0], np.flatnonzero(new) + 1, [files.num_rows]])


Content = tuple[memoryview, Array]
"""The bytes of some segments, and where in them each begins, and the last ends."""


def _file_rows(files: pa.Table, bounds: Array) -> Content:
    some = files.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    columns = [_numbers(some[name], PLANNED_FILES.field(name)) for name in _NUMBERS]
    return _packed(columns, bounds - bounds[0])


def _texts(files: pa.Table, bounds: Array) -> Content:
    """Path and action of each file, each with a line feed behind it, which neither can hold."""
    some = files.slice(int(bounds[0]), int(bounds[-1] - bounds[0]))
    path, action = (some[name].cast(pa.large_string()).combine_chunks() for name in _TEXTS)
    end, feed = (pa.scalar(text, pa.large_string()) for text in ("", "\n"))
    joined = pc.binary_join_element_wise(path, action, end, feed)
    offsets = np.append(0, np.cumsum(pc.binary_length(joined).to_numpy()))
    content = joined.buffers()[2].slice(0, int(offsets[-1]))
    return memoryview(content), offsets[bounds - bounds[0]]


def _rows_by_file(table: pa.Table, shape: pa.Schema, bounds: Array) -> Content:
    """Rows that belong to files, each file by its place in its segment."""
    files = table["file"].to_numpy()
    starts = np.searchsorted(files, bounds)
    some = table.slice(int(starts[0]), int(starts[-1] - starts[0]))
    place = files[starts[0] : starts[-1]] - np.repeat(bounds[:-1], np.diff(starts))
    keys = _RULE_KEYS[rule_numbers(some["rule"])]
    others = [
        _numbers(some[field.name], field) for field in shape if field.name not in {"file", "rule"}
    ]
    return _packed([[place, keys], *others], starts - starts[0])


def _numbers(column: pa.ChunkedArray, field: pa.Field) -> list[Array]:
    """A column as int64, and which of it is null if it may be."""
    numbers = column.cast(pa.int64())
    if not field.nullable:
        return [numbers.to_numpy()]
    return [pc.fill_null(numbers, 0).to_numpy(), pc.is_null(numbers).to_numpy()]


def _packed(columns: Sequence[Sequence[Array]], bounds: Array) -> Content:
    """Columns row by row, 64 bits each, lowest byte first."""
    flat = [column for parts in columns for column in parts]
    rows = np.ascontiguousarray(np.stack(flat, axis=1), dtype="<i8")
    return memoryview(rows.tobytes()), bounds * (8 * len(flat))
