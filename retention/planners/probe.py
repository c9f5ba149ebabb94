"""The rows of a stored stream: the task that reads a span's narrow columns and asks a rule about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, cast

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile, ReadCount
from retention.core.spans import Array, Spans
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.plan.remaining import RemainingMessages, RemainingRow, visible_rows
from retention.plan.removed_ranges import store_ranges
from retention.planners import deleted_subjects
from retention.planners.rows import Asked, Deletions, Rule, Told
from retention.planners.scratch import Scratch, new_place
from retention.planners.subject_shuffle import subject_excess, with_fetched_shares
from retention.ports import Engine
from retention.rules.row_verdicts import Answer, SpanRows
from retention.rules.rule import SubjectExcess
from retention.storage import files
from schemas.messages import RULE_COLUMNS

MOST_HELD = 1_024
"""Ranges of one span that travel from a Spark task to who plans; more stay in a file."""


@dataclass(frozen=True)
class StoredRows:
    """The rows of a stored stream, read on the engine that fits; implements `StreamRows`."""

    opened: OpenedStream
    engines: Engines

    def of(self, remaining: RemainingMessages) -> RemainingRows:
        """The rows of the stream, as far as its consumers leave them."""
        return RemainingRows(self.opened, remaining, self.engines)

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`, as `Store.subject_counts`."""
        return self.opened.store.subject_counts(files)

    def excess(self, remaining: RemainingMessages, spans: Spans, limit: int) -> SubjectExcess:
        """The messages of each span beyond a limit per subject: in this process, or by tasks if subjects are many."""
        return subject_excess(self.opened, remaining, spans, limit, self.engines)

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """The deletions in some files; those in which nobody has looked are read."""
        return deleted_subjects.all_deletions(self.opened, remaining, wanted, self.engines)


@dataclass(frozen=True)
class UnopenedRows(StoredRows):
    """The rows of a stored stream, of which no data file is opened but to answer questions."""

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """The deletions in some files, where somebody has looked before."""
        return deleted_subjects.known_deletions(self.opened, remaining, wanted)


@dataclass(frozen=True)
class RemainingRows:
    """The rows of what consumers leave of a stored stream; implements `SpanRowsReader`."""

    opened: OpenedStream
    remaining: RemainingMessages
    engines: Engines

    def __call__(
        self, rule: Rule[Asked, Told], spans: Spans, questions: Sequence[Asked]
    ) -> list[Told]:
        """Read each question's span, as far as rules look at it.

        Raises:
            DamagedError: a file cannot be read.
        """
        probes = [self._probe(spans, question) for question in questions]
        lengths = self.remaining.files["file_bytes"].to_numpy()
        weights = [int(lengths[list(probe.numbers)].sum()) for probe in probes]
        config = self.opened.config
        engine = self.engines.pick(config.engine, sum(weights), config.local_limit)
        scratch = self._scratch(engine)
        leaving = None if scratch is None else Leaving(scratch.location, MOST_HELD)
        answers = engine.map(partial(_tell, rule, leaving), probes, weights)
        return answers if scratch is None else [_owned(answer, scratch) for answer in answers]

    def _scratch(self, engine: Engine) -> Scratch | None:
        """The directory for ranges that tasks leave where they are; None: they come here."""
        scratch: Scratch | None = None
        if engine.name != "local":
            with files.if_writable():
                scratch = Scratch(self.opened, engine)
        return scratch

    def _probe(self, spans: Spans, question: Asked) -> Probe[Asked]:
        first, end = self.remaining.rows_of(spans, question.span)
        files = self.opened.store.data_files(self.remaining.stored_part(first, end))
        hidden = self.remaining.hidden(first, end)
        numbers = tuple(map(RemainingRow, range(first, end)))
        return Probe(question, tuple(files), numbers, hidden)


@dataclass(frozen=True)
class Probe(Generic[Asked]):
    """A task: the files of one span and the question about them."""

    question: Asked
    files: tuple[DataFile, ...]
    numbers: tuple[RemainingRow, ...]
    """The files' row numbers in what remains."""
    hidden: Array
    """Ranges of sequences that are gone; shape (n, 2)."""


@dataclass(frozen=True)
class Leaving:
    """A directory in which a task leaves the ranges of an answer that has too many of them."""

    directory: str
    most_held: int
    """Ranges that go to who plans; of more, none."""

    def of(self, answer: Answer) -> Answer:
        """The answer, its ranges left in a file if they are too many."""
        if answer.removed.num_rows <= self.most_held:
            return answer
        return store_ranges(answer, new_place(self.directory, f"ranges-{answer.span}"))


def _owned(answer: Told, scratch: Scratch) -> Told:
    """An answer that keeps the directory of its ranges as long as it is there itself."""
    if not isinstance(answer, Answer) or answer.stored is None:
        return answer
    return replace(answer, stored=replace(answer.stored, owner=scratch))


def _tell(rule: Rule[Asked, Told], leaving: Leaving | None, probe: Probe[Asked]) -> Told:
    question = with_fetched_shares(probe.question)
    stored, of_stored, read = read_span(probe.files, question.columns)
    rows, file_of_row = visible_rows(stored, of_stored, probe.hidden)
    answer = rule(SpanRows(rows, np.array(probe.numbers)[file_of_row], read), question)
    if leaving is None or not isinstance(answer, Answer):
        return answer
    return cast("Told", leaving.of(answer))


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
