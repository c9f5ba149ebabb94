"""Looking into a span: the task that reads its narrow columns and answers what the rules ask of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.parquet_files import read_columns
from retention.passes.exchange import fetched
from retention.rules.judge import Answer, Question, judge, ranges_of
from retention.rules.spans import Array
from retention.segments import DataFile, ReadCount
from schemas.messages import RULE_COLUMNS
from schemas.plan import REMOVED_RANGES


@dataclass(frozen=True)
class Probe:
    """A task: the files of one span and the question about them."""

    question: Question
    files: tuple[DataFile, ...]
    numbers: tuple[int, ...]
    """The files' row numbers in the inventory."""


def answer(probe: Probe) -> Answer:
    """Carry out a probe.

    Raises:
        DamagedError: a file cannot be read.
    """
    question = fetched(probe.question)
    rows, file_of_row, read = read_span(probe.files, question.columns)
    verdicts, until = judge(rows, question)
    stop_seq = None if until is None else rows["seq"][until].as_py()
    parts = [
        _numbered(
            number, ranges_of(rows.filter(pa.array(file_of_row == at)), verdicts[file_of_row == at])
        )
        for at, number in enumerate(probe.numbers)
    ]
    return Answer(question.span, pa.concat_tables(parts), stop_seq, read)


def read_span(
    files: tuple[DataFile, ...], columns: tuple[str, ...] = RULE_COLUMNS
) -> tuple[pa.Table, Array, ReadCount]:
    """Read narrow columns, `seq` among them, of a span's files, ascending by `seq`, and which file each row is from."""
    tables, reads = zip(*(read_columns(file, columns) for file in files), strict=True)
    rows = pa.concat_tables(tables)
    file_of_row = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    if len(tables) > 1:
        order = np.argsort(rows["seq"].to_numpy(), kind="stable")
        rows, file_of_row = rows.take(pa.array(order)), file_of_row[order]
    return rows, file_of_row, sum(reads, ReadCount())


def _numbered(number: int, ranges: pa.Table) -> pa.Table:
    numbers = pa.array(np.full(ranges.num_rows, number), pa.int64())
    return ranges.add_column(0, "file", numbers).select(REMOVED_RANGES.names).cast(REMOVED_RANGES)
