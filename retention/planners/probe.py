"""Rows of a stored stream: tasks that read a span's narrow columns and apply a rule to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.read_count import ReadCount
from retention.core.spans import Array, Spans
from retention.datafile.parquet import read_columns
from retention.engine_port import Engine
from retention.engines.select import Engines
from retention.plan.remaining import (
    InventoryRow,
    RemainingMessages,
    RemainingRow,
    StoredDigest,
    digest_in,
    visible_rows,
)
from retention.plan.removed_ranges import FileRanges, store_ranges
from retention.planners import deleted_subjects
from retention.planners.interest import InterestAnswer
from retention.planners.rows import Asked, Deletions, Rule, Told
from retention.planners.scratch import new_scratch
from retention.planners.subject_shuffle import subject_excess, with_fetched_shares
from retention.rules.row_verdicts import Answer, SpanRows
from retention.rules.rule import SubjectExcess
from retention.schemas.messages import RULE_COLUMNS
from retention.schemas.plan import REMOVED_RANGES
from retention.storage import files, scratch_files
from retention.storage.scratch_files import ScratchDirectory

MOST_IN_MEMORY = 1_024
"""The maximum number of ranges of one span that a Spark task returns to the driver; more are stored in a file."""


@dataclass(frozen=True)
class StoredRows:
    """The rows of a stored stream, read on a suitable engine; implements `StreamRows`."""

    opened: OpenedStream
    engines: Engines

    def of(self, remaining: RemainingMessages) -> RemainingRows:
        """The remaining rows of the stream."""
        return RemainingRows(self.opened, remaining, self.engines)

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`, as `Store.subject_counts`."""
        return self.opened.store.subject_counts(files)

    def excess(self, remaining: RemainingMessages, spans: Spans, limit: int) -> SubjectExcess:
        """The messages of each span beyond a limit per subject, counted in this process, or by tasks if many."""
        return subject_excess(self.opened, remaining, spans, limit, self.engines)

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """The deletions in some files; files not searched before are read."""
        return deleted_subjects.all_deletions(self.opened, remaining, wanted, self.engines)


@dataclass(frozen=True)
class UnopenedRows(StoredRows):
    """The rows of a stored stream, without opening data files to search for deletions."""

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """The known deletions in some files, from earlier searches."""
        return deleted_subjects.known_deletions(self.opened, remaining, wanted)


@dataclass(frozen=True)
class RemainingRows:
    """The remaining rows of a stored stream; implements `SpanRowsReader`."""

    opened: OpenedStream
    remaining: RemainingMessages
    engines: Engines

    @labelled(step="read rows")
    def __call__(
        self, rule: Rule[Asked, Told], spans: Spans, questions: Sequence[Asked]
    ) -> list[Told]:
        """Read the columns of each question's span, and apply the rule.

        Raises:
            DamagedError: a file cannot be read.
        """
        probes = [self._probe(spans, question) for question in questions]
        lengths = self.remaining.files["file_bytes"].to_numpy()
        weights = [int(lengths[list(probe.numbers)].sum()) for probe in probes]
        config = self.opened.config
        engine = self.engines.pick(config.engine, sum(weights), config.local_limit)
        scratch = self._scratch(engine)
        spill = None if scratch is None else ResultSpill(scratch.location, MOST_IN_MEMORY)
        answers = engine.map(partial(_tell, rule, spill), probes, weights)
        return answers if scratch is None else [_owned(answer, scratch) for answer in answers]

    def _scratch(self, engine: Engine) -> ScratchDirectory | None:
        """The directory for ranges stored by tasks; None: tasks return them."""
        scratch: ScratchDirectory | None = None
        if engine.name != "local":
            with files.if_writable():
                scratch = new_scratch(self.opened, engine)
        return scratch

    def _probe(self, spans: Spans, question: Asked) -> Probe[Asked]:
        first, end = self.remaining.rows_of(spans, question.span)
        files = self.opened.store.data_files(self.remaining.stored_part(first, end))
        hidden = tuple(self.remaining.hidden(first, end))
        numbers = tuple(map(RemainingRow, range(first, end)))
        return Probe(question, tuple(files), numbers, hidden)


@dataclass(frozen=True)
class Probe(Generic[Asked]):
    """A task: the files of one span, and the question about them."""

    question: Asked
    files: tuple[DataFile, ...]
    numbers: tuple[RemainingRow, ...]
    """The files' row numbers among the remaining files."""
    hidden: tuple[Array | FileRanges, ...]
    """Removed ranges of sequences, per file."""


@dataclass(frozen=True)
class ResultSpill:
    """A directory for results that are too large to return to the driver."""

    directory: str
    most_in_memory: int
    """The maximum number of rows returned with an answer; if there are more, all are stored."""

    def of(self, answer: Told) -> Told:
        """An answer, with its ranges and digests stored in files if they are too many and the location is writable."""
        with files.if_writable():
            if isinstance(answer, InterestAnswer):
                answer = replace(answer, digests=self._digests(answer))
            if (
                isinstance(answer, (Answer, InterestAnswer))
                and answer.removed.num_rows > self.most_in_memory
            ):
                place = scratch_files.new_place(self.directory, f"ranges-{answer.span}")
                stored = store_ranges(answer.removed, place)
                answer = replace(answer, removed=REMOVED_RANGES.empty_table(), stored=stored)
        return answer

    def _digests(self, answer: InterestAnswer) -> Mapping[InventoryRow, pa.Table | StoredDigest]:
        tables = {number: digest_in(digest) for number, digest in answer.digests.items()}
        if sum(map(len, tables.values())) <= self.most_in_memory:
            return tables
        place = scratch_files.new_place(self.directory, f"digests-{answer.span}")
        scratch_files.write_tables(place, list(tables.values()))
        return {number: StoredDigest(place, at) for at, number in enumerate(tables)}


def _owned(answer: Told, scratch: ScratchDirectory) -> Told:
    """An answer with a reference to the scratch directory, to keep the directory as long as the answer."""
    if isinstance(answer, (Answer, InterestAnswer)) and answer.stored is not None:
        answer = replace(answer, stored=replace(answer.stored, owner=scratch))
    if isinstance(answer, InterestAnswer):
        digests = {
            number: replace(digest, owner=scratch) if isinstance(digest, StoredDigest) else digest
            for number, digest in answer.digests.items()
        }
        answer = replace(answer, digests=digests)
    return answer


def _tell(rule: Rule[Asked, Told], spill: ResultSpill | None, probe: Probe[Asked]) -> Told:
    question = with_fetched_shares(probe.question)
    stored, of_stored, read = read_span(probe.files, question.columns)
    rows, file_of_row = visible_rows(stored, of_stored, probe.hidden)
    answer = rule(SpanRows(rows, np.array(probe.numbers)[file_of_row], read), question)
    return answer if spill is None else spill.of(answer)


def read_span(
    files: tuple[DataFile, ...], columns: tuple[str, ...] = RULE_COLUMNS
) -> tuple[pa.Table, Array, ReadCount]:
    """Read narrow columns (including `seq`) of a span's files, ascending by `seq`, with the file of each row."""
    tables, reads = zip(*(read_columns(file, columns) for file in files), strict=True)
    rows = pa.concat_tables(tables)
    file_of_row = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    if len(tables) > 1:
        order = np.argsort(rows["seq"].to_numpy(), kind="stable")
        rows, file_of_row = rows.take(pa.array(order)), file_of_row[order]
    return rows, file_of_row, sum(reads, ReadCount())
