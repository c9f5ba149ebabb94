"""Protocols for queries on a stream's rows, implemented by a stored stream or by any list of messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa

from retention.core.read_count import ReadCount
from retention.core.spans import Spans
from retention.plan.remaining import RemainingMessages, RemainingRow
from retention.rules.row_verdicts import SpanRows
from retention.rules.rule import SubjectExcess

Told = TypeVar("Told")


class SpanQuestion(Protocol):
    """A question about the rows of one span; picklable."""

    @property
    def span(self) -> int:
        """The span's number."""
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns needed to answer."""
        ...


Asked = TypeVar("Asked", bound=SpanQuestion)
Rule = Callable[[SpanRows, Asked], Told]
"""A pure function of a span's rows and a question about them; picklable."""


class SpanRowsReader(Protocol):
    """A reader that answers questions from rows."""

    def __call__(
        self, rule: Rule[Asked, Told], spans: Spans, questions: Sequence[Asked]
    ) -> list[Told]:
        """The answers of `rule` from the rows of each question's span, in the order of the questions.

        Raises:
            DamagedError: a file cannot be read.
        """
        ...


@dataclass(frozen=True)
class Deletions:
    """The deletions in some files of a stream."""

    messages: pa.Table
    """Shape `DELETIONS`, including deletions that consumers have released."""
    unseen: tuple[RemainingRow, ...] = ()
    """The files among them that were never searched."""
    read: ReadCount = field(default_factory=ReadCount)


class StreamRows(Protocol):
    """The only access of planning to data beyond statistics."""

    def of(self, remaining: RemainingMessages) -> SpanRowsReader:
        """The remaining rows of a stream."""
        ...

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files` (`FILE_STATS` rows): shape `SUBJECT_COUNTS_OF_FILES`.

        Raises:
            DamagedError: a data file whose digest is lost cannot be read.
        """
        ...

    def excess(self, remaining: RemainingMessages, spans: Spans, limit: int) -> SubjectExcess:
        """The messages of each span beyond a limit per subject, counted over the remaining messages.

        Raises:
            DamagedError: a data file whose digest is lost cannot be read.
        """
        ...

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """The deletions in `wanted`, a subset of the remaining files.

        Raises:
            DamagedError: a file cannot be read.
        """
        ...
