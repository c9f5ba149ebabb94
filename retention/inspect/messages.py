"""Reading a stream's messages in order, a span of files at a time, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.spans import Spans, spans_of
from retention.core.subjects import is_valid_filter, matching_mask
from retention.datafile.file_messages import with_position
from retention.datafile.parquet import read_columns
from retention.datafile.row_groups import merged_by_seq, rows_in_order
from retention.errors import UsageError
from retention.ports import Store
from retention.schemas.messages import FILE_COLUMNS, MESSAGES


@dataclass(frozen=True)
class Selection:
    """A selection of messages; a field that is None does not restrict it."""

    partition: int | None = None
    subject: str | None = None
    """A filter, with `*` for one token and a last `>` for one or more."""
    from_seq: int | None = None
    last: int | None = None
    """Number of newest messages to return among those that the other fields select."""


def read_messages(opened: OpenedStream, wanted: Selection) -> Iterator[pa.Table]:
    """Read messages of shape `MESSAGES`, in order of partition and sequence; one span of files is in memory at a time.

    Raises:
        UsageError: the subject filter is not valid.
        DamagedError: a file cannot be read.
    """
    check_filter(wanted.subject)
    if not opened.table.exists():
        return iter(())
    files = opened.store.inventory(opened.store.snapshot()).files
    spans = spans_of(files)
    tables = (
        _select(_rows(opened.store, files, spans, span), wanted)
        for span in _candidates(spans, wanted)
    )
    return tables if wanted.last is None else _newest(tables, wanted.last)


def check_filter(subject: str | None) -> None:
    """Refuse an invalid subject filter; None filters nothing."""
    if subject is not None and not is_valid_filter(subject):
        raise UsageError(
            f"{subject!r} is not a subject filter: write tokens separated by dots, * for one token, > at the end for "
            "one or more"
        )


def columns_in_order(store: Store, files: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of all messages in an inventory's files, in order; `seq` is among them.

    One row group is in memory at a time, or one of each file of a span.
    """
    spans = spans_of(files)
    for span in range(len(spans)):
        inside = files_of_span(store, files, spans, span)
        yield from merged_by_seq([rows_in_order(file, columns) for file in inside])


def _candidates(spans: Spans, wanted: Selection) -> Sequence[int]:
    """Spans that may have wanted messages, in order; the newest first if only the last ones are wanted."""
    mask = np.ones(len(spans), dtype=bool)
    if wanted.partition is not None:
        mask &= spans.partition == wanted.partition
    if wanted.from_seq is not None:
        mask &= spans.max_seq >= wanted.from_seq
    numbers: list[int] = np.flatnonzero(mask).tolist()
    return numbers if wanted.last is None else numbers[::-1]


def _rows(store: Store, files: pa.Table, spans: Spans, span: int) -> pa.Table:
    parts = [_rows_of(file) for file in files_of_span(store, files, spans, span)]
    rows = pa.concat_tables(parts)
    return rows if len(parts) == 1 else rows.sort_by("seq")


def files_of_span(store: Store, files: pa.Table, spans: Spans, span: int) -> list[DataFile]:
    """The files of an inventory that form a span, ready to be opened."""
    first, end = (int(number) for number in spans.first_file[span : span + 2])
    return store.data_files(files.slice(first, end - first))


def _rows_of(file: DataFile) -> pa.Table:
    rows, _ = read_columns(file, FILE_COLUMNS.names)
    return with_position(file, rows).select(MESSAGES.names)


def _select(rows: pa.Table, wanted: Selection) -> pa.Table:
    if wanted.from_seq is not None:
        rows = rows.filter(pc.greater_equal(rows["seq"], max(wanted.from_seq, 0)))
    if wanted.subject is not None:
        rows = rows.filter(matching_mask(rows["subject"], [wanted.subject]))
    return rows


def _newest(newest_first: Iterator[pa.Table], count: int) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    missing = count
    for table in newest_first:
        held.append(table.slice(max(table.num_rows - missing, 0)))
        missing -= held[-1].num_rows
        if missing <= 0:
            break
    return reversed(held)
