"""Looking into spans: the task that reads a span's narrow columns and asks a rule about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile, ReadCount
from retention.core.spans import Array, Spans
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.plan.remaining import Left, shown
from retention.planners.subject_shuffle import fetched
from retention.rules.row_verdicts import SpanRows
from schemas.messages import RULE_COLUMNS

Told = TypeVar("Told")


class AboutSpan(Protocol):
    """A question about the rows of one span; picklable."""

    @property
    def span(self) -> int:
        """The span's number."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it takes to answer."""
        ...


Asked = TypeVar("Asked", bound=AboutSpan)
Rule = Callable[[SpanRows, Asked], Told]
"""A pure function of a span's rows and what is asked of them; picklable."""


class Asks(Protocol):
    """Puts questions to rows."""

    def __call__(
        self, rule: Rule[Asked, Told], spans: Spans, questions: Sequence[Asked]
    ) -> list[Told]:
        """What `rule` says of the rows of each question's span, in order of the questions."""
        ...


@dataclass(frozen=True)
class Rows:
    """The rows of what is left of a stream, read on the engine that fits; implements `Asks`."""

    opened: OpenedStream
    left: Left
    engines: Engines

    def __call__(
        self, rule: Rule[Asked, Told], spans: Spans, questions: Sequence[Asked]
    ) -> list[Told]:
        """Read each question's span, as far as rules look at it.

        Raises:
            DamagedError: a file cannot be read.
        """
        probes = [self._probe(spans, question) for question in questions]
        lengths = self.left.files["file_bytes"].to_numpy()
        weights = [int(lengths[list(probe.numbers)].sum()) for probe in probes]
        config = self.opened.config
        engine = self.engines.pick(config.engine, sum(weights), config.local_limit)
        return engine.map(partial(_tell, rule), probes, weights)

    def _probe(self, spans: Spans, question: Asked) -> Probe[Asked]:
        first, end = (int(number) for number in spans.first_file[question.span :][:2])
        found = self.opened.store.data_files(self.left.stored_part(first, end))
        return Probe(question, tuple(found), tuple(range(first, end)), self.left.hidden(first, end))


@dataclass(frozen=True)
class Probe(Generic[Asked]):
    """A task: the files of one span and the question about them."""

    question: Asked
    files: tuple[DataFile, ...]
    numbers: tuple[int, ...]
    """The files' row numbers in what is left."""
    hidden: Array
    """Ranges of sequences that are gone; shape (n, 2)."""


def _tell(rule: Rule[Asked, Told], probe: Probe[Asked]) -> Told:
    question = fetched(probe.question)
    stored, of_stored, read = read_span(probe.files, question.columns)
    rows, file_of_row = shown(stored, of_stored, probe.hidden)
    return rule(SpanRows(rows, np.array(probe.numbers)[file_of_row], read), question)


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
