"""The identity of a plan: SHA-256 of its decisions, independent of the engine and of the chunks of tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import plain_texts
from retention.core.slices import slices_of
from retention.plan.header_digest import header_digest
from retention.plan.removed_ranges import RemovedRanges
from retention.schemas.rule_names import RULE_NAMES

if TYPE_CHECKING:
    from retention.core.spans import Array


def identity(
    header: Mapping[str, object], tables: Sequence[pa.Table], parts: Iterable[bytes]
) -> str:
    """The identity of a plan, 64 hexadecimal digits: SHA-256 of its header, as canonical JSON, tables and parts.

    Tables are digested column by column, as values and not in Arrow's memory layout. So a new plan
    and a plan read from a file, in any number of pieces, have the same digest.

    Args:
        header: the decisions on the stream as a whole, JSON-able.
        tables: the actions, file by file; each table has a fixed shape, with columns of numbers or texts.
        parts: digests of the ranges removed within files, `part_digests`.
    """
    digest = header_digest(header)
    for table in tables:
        digest.update(table.num_rows.to_bytes(8, "little"))
        for column in table.columns:
            for content in _contents(column):
                digest.update(content)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def part_digests(files: pa.Table, parts: RemovedRanges) -> Iterator[bytes]:
    """Digest the removed ranges in each kept segment, in order of partition and base: 32 bytes per segment.

    A segment's rows name files by their position in the segment, and rules by their names. So a
    task can digest the parts of its segment without those of other segments.

    Args:
        files: the touched files, by partition and segment; shape `PLANNED_FILES`.
        parts: the ranges to remove from partly removed files; `file` is a row number of `files`.
    """
    if not parts:
        return
    begins = _begins(files)
    open_, digest = -1, hashlib.sha256()
    for ranges in chain.from_iterable(map(slices_of, parts.tables())):
        for segment, rows in _rows_of_segments(ranges, begins):
            if segment != open_ and open_ >= 0:
                yield digest.digest()
                digest = hashlib.sha256()
            open_ = segment
            digest.update(rows)
    if open_ >= 0:
        yield digest.digest()


def _rows_of_segments(ranges: pa.Table, begins: Array) -> Iterator[tuple[int, memoryview]]:
    """The ranges of each segment, by its first file, as the bytes to digest."""
    file = ranges["file"].to_numpy()
    first = begins[np.searchsorted(begins, file, side="right") - 1]
    numbers = (ranges[name].to_numpy() for name in ("first_seq", "last_seq", "messages", "bytes"))
    columns = [file - first, _rule_keys()[ranges["rule"].to_numpy()], *numbers]
    rows = np.stack(columns, axis=1, dtype="<i8").data.cast("B")
    starts = np.flatnonzero(np.diff(first, prepend=-1))
    ends = np.append(starts, len(file)) * (8 * len(columns))
    for start, (begin, end) in zip(starts.tolist(), pairwise(ends.tolist()), strict=True):
        yield int(first[start]), rows[begin:end]


def _begins(files: pa.Table) -> Array:
    """Row numbers at which the files of each segment begin: for the segments 1, 1 and 40, these are 0 and 2."""
    partition, segment = (files[name].to_numpy() for name in ("partition", "segment"))
    return np.flatnonzero(
        (np.diff(partition, prepend=-1) != 0) | (np.diff(segment, prepend=-1) != 0)
    )


@cache
def _rule_keys() -> Array:
    """The number of each rule, by its index in `RULE_NAMES`: the first bytes of the SHA-256 of its name."""
    digests = (hashlib.sha256(name.encode()).digest()[:8] for name in RULE_NAMES)
    return np.array([int.from_bytes(digest, "little", signed=True) for digest in digests], "<i8")


def _contents(column: pa.ChunkedArray) -> Iterator[bytes | memoryview]:
    """A column's bytes: the number of nulls, their positions if there are any, and the values, with 0 for nulls.

    Numbers are 64 bits, little-endian; texts are written as all lengths, followed by all texts.
    """
    yield column.null_count.to_bytes(8, "little")
    if column.null_count == len(column):
        yield np.ones(len(column), "<i8").data
    elif column.null_count:
        yield from _int64(pc.is_null(column))
    if not (pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)):
        yield from _int64(column)
        return
    texts = plain_texts(column)
    ends = [_ends(chunk) for chunk in texts.chunks]
    if texts.null_count:
        yield from _int64(pc.binary_length(texts))
    else:
        yield from (np.diff(each).astype("<i8").data for each in ends)
    for chunk, each in zip(texts.chunks, ends, strict=True):
        yield memoryview(chunk.buffers()[2] or b"")[each[0] : each[-1]]


def _ends(texts: pa.StringArray) -> Array:
    """The ends of texts in the buffer of all of them, after the beginning of the first."""
    return np.frombuffer(texts.buffers()[1], "<i4", len(texts) + 1, texts.offset * 4)


def _int64(column: pa.ChunkedArray) -> Iterator[memoryview]:
    if column.null_count == len(column):
        yield np.zeros(len(column), "<i8").data
        return
    known = column.fill_null(0) if column.null_count else column
    for chunk in known.chunks:
        yield chunk.to_numpy(zero_copy_only=False).astype("<i8", copy=False).data
