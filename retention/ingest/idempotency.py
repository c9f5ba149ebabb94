"""Exactly-once writing: a writer's batches have rising numbers, and a committed batch is not written again."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.counters import Counters
from retention.core.units import INT64_MAX
from retention.errors import RefusedError, UsageError
from retention.layout.partitioner import TURN
from retention.stores.kept_ids import UNSTORED_IDS

_QUERY = "retention/query/"
"""Prefix of a query's id and a writer's name, under which the log keeps the query's last batch as that writer."""
_TAKEN = (TURN, UNSTORED_IDS)
_NOT_OF_PEOPLE = (*_TAKEN, _QUERY, "nats-backup/", "iggy-log/", "iggy-sync")
"""Prefixes of the names that the engine itself uses, imports among them."""
_WRITER = "append"
"""The writer of an append that names none."""


@dataclass(frozen=True)
class BatchIdentity:
    """Identity of a write made exactly once: a batch numbered no higher than the writer's last is not written again."""

    writer: str
    batch: int
    also: str | None = None
    """A second name under which the commit keeps the same number."""

    def __post_init__(self) -> None:
        """Refuse names that the engine itself uses, and numbers that a log cannot keep.

        Raises:
            UsageError: the writer has such a name, or the batch such a number.
        """
        if not -INT64_MAX <= self.batch <= INT64_MAX:
            raise UsageError(
                f"batch {self.batch} of writer {self.writer} is out of range: batch numbers have 64 bits"
            )
        if self.writer in _TAKEN or self.writer.startswith(_QUERY):
            raise UsageError(
                f"the writer name {self.writer} is reserved for the engine; choose another name"
            )

    @property
    def batches(self) -> dict[str, int]:
        """Names and numbers that the commit keeps."""
        return {name: self.batch for name in (self.writer, self.also) if name is not None}

    def repeats(self, stream: str, counters: Counters) -> bool:
        """Whether the writer has already written this batch or a later one."""
        last = counters.batches.get(self.writer)
        return last is not None and self.batch <= last


@dataclass(frozen=True)
class NextBatch(BatchIdentity):
    """A batch that follows one certain batch of its writer: its content was derived from the state after that one."""

    after: int | None = None
    """The number of the preceding batch; None: the writer has written none."""

    def repeats(self, stream: str, counters: Counters) -> bool:
        """Whether another batch came first."""
        return counters.batches.get(self.writer) != self.after


@dataclass(frozen=True)
class MicroBatch(BatchIdentity):
    """A batch of a streaming query; its numbers are meaningful in one checkpoint only.

    A query repeats only its last batch; its id is that of its checkpoint.
    """

    query: str | None = None
    """The query's id; None: unknown."""

    @property
    def batches(self) -> dict[str, int]:
        """Names and numbers that the commit keeps, and the query that wrote the number."""
        of_query = {} if self.query is None else {self._of_query(self.query): self.batch}
        return super().batches | of_query

    def repeats(self, stream: str, counters: Counters) -> bool:
        """Whether the query has written this batch already, as its last one.

        Raises:
            RefusedError: the writer's last batch is that of another checkpoint, or a later one.
        """
        last = counters.batches.get(self.writer)
        if last is None:
            return False
        is_foreign = self.query is not None and self._others(counters, last)
        if is_foreign or self.batch < last:
            owner = "another checkpoint's" if is_foreign else "a later one"
            raise RefusedError(
                f"{stream}: the streaming query brings batch {self.batch} as writer {self.writer}, whose last is batch "
                f"{last}, {owner}: its checkpoint was deleted, replaced, or restored to an older state, so that the "
                "numbers do not show which messages were appended; nothing was appended; restore the query's own "
                "checkpoint, or give the sink another writer's name and begin where the stream ends"
            )
        return self.batch == last

    def _others(self, counters: Counters, last: int) -> bool:
        """Whether a query other than this one has written the writer's last batch."""
        wrote = set()
        for name, batch in counters.batches.items():
            if name.startswith(_QUERY) and batch == last:
                query, _, writer = name.removeprefix(_QUERY).partition("/")
                wrote |= {query} if writer == self.writer else set()
        return bool(wrote) and self.query not in wrote

    def _of_query(self, query: str) -> str:
        return f"{_QUERY}{query}/{self.writer}"


def batch_identity(writer: str | None, batch: int | None) -> BatchIdentity | None:
    """The identity that makes a write exactly once; None if neither writer nor batch is given.

    Raises:
        UsageError: one is given without the other.
    """
    if writer is None and batch is None:
        return None
    if writer is None or batch is None:
        raise UsageError(
            "a writer and a batch number belong together: the writer's name, and a number that rises with each of its "
            "batches; give both or neither"
        )
    return BatchIdentity(writer, batch)


def append_identity(writer: str | None, batch: int | None) -> BatchIdentity | None:
    """The identity that makes an append exactly once; without a given writer, the default one.

    Raises:
        UsageError: a writer is given without a batch.
    """
    return batch_identity(_WRITER if writer is None and batch is not None else writer, batch)


def last_batches(counters: Counters) -> dict[str, int]:
    """Writer → the number of its last batch, by name; without the engine's own names."""
    named = sorted(counters.batches.items())
    return {writer: batch for writer, batch in named if not writer.startswith(_NOT_OF_PEOPLE)}


def is_repeat(stream: str, counters: Counters, identity: BatchIdentity | None) -> bool:
    """Whether a batch was already committed, so that it is acknowledged instead of written.

    Raises:
        RefusedError: it is a streaming query's, and this is unknown.
    """
    return identity is not None and identity.repeats(stream, counters)
