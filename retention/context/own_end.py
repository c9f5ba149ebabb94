"""The end of a log after this process's own commits, known without reading the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from retention.core.counters import Counters
from retention.datafile.segment_writer import PARTITION
from retention.layout.partitioner import TURN
from retention.layout.segment_roll import Tail
from retention.ports import TableHead


@dataclass(frozen=True)
class KnownEnd:
    """The end of a log at a version that a commit of this process made."""

    head: TableHead
    tails: Mapping[int, Tail]
    """Partition → its end, of every partition."""
    is_empty: bool
    """Whether the table has no file."""

    @property
    def version(self) -> int:
        """The version."""
        return self.head.version

    @property
    def counters(self) -> Counters:
        """The effective counters."""
        return self.head.counters

    @property
    def next_seq(self) -> int:
        """The next sequence of a stream, which has one partition."""
        return self.tail(PARTITION).next_seq

    @property
    def turn(self) -> int:
        """The number of batches that named no partition and were assigned one."""
        return self.counters.batches.get(TURN, 0)

    def tail(self, partition: int) -> Tail:
        """The end of a partition."""
        return self.tails[partition]


@dataclass(frozen=True)
class LastCommit:
    """A commit of this process that only added files."""

    run: str
    before: TableHead
    """The version on which it was made."""
    tails: Mapping[int, Tail]
    """Partition → its end after the commit."""
    is_empty: bool
    """Whether the table has no file after it."""

    def end(self) -> KnownEnd | None:
        """The log's end, if no other commit followed; None: it has to be located.

        Raises:
            LostCommitError: another program overwrote a commit of ours in the log.
        """
        head = self.before.after(self.run)
        return None if head is None else KnownEnd(head, self.tails, self.is_empty)


class OwnEnd:
    """The end that the last commit of this process left, if it is known; an append takes it over."""

    def __init__(self) -> None:
        self._last: LastCommit | None = None

    def take(self) -> KnownEnd | None:
        """Give up the last commit; return the log's end after it, if no other followed.

        Raises:
            LostCommitError: as `LastCommit.end`.
        """
        last, self._last = self._last, None
        return None if last is None else last.end()

    def keep(self, last: LastCommit | None) -> None:
        """Know the end after a commit; None: the table has to be opened."""
        self._last = last
