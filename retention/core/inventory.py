"""The inventory of a stream: its data files with their statistics, and the counters of its log."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from retention.core.vector_paths import data_path, vector_place

CONSUMERS = "consumers"
"""The name under which logs keep the counter of consumers' edits."""
RELEASED = "released"
"""The name under which logs of earlier builds keep the number of a record of row tombstones."""
EPOCH = "epoch"
"""The name under which logs keep the epoch of a topic's counters."""
RUN = "run"
"""The name under which logs keep the start of the last recorded run that committed; it outlives the log entry."""
CLAIMS = "claims"
"""The name under which logs keep the number of claims on dead files."""
STAGING_CLAIMS = "staging_claims"
"""The name under which logs keep the number of claims on files staged and never committed."""
DROPPED = "dropped"
"""The name under which logs keep the instant at which the stream was dropped."""
GENERATION = "generation"
"""The name under which logs keep the epoch in which the last table began, after a drop."""
HISTORY_HEAD = "history_head"
"""The name under which logs keep the link of the last run in the chain of the run history."""
ARCHIVE_HEAD = "archive_head"
"""The name under which logs keep the number of the newest manifest of the table's archive."""
HOLDS = "holds"
"""The name under which logs keep the counter of legal holds placed and released."""
REPLAY = "replay"
"""The name under which logs keep the number of the record from which the next pass goes on with its replay."""
_ATTEMPT_DIGITS = 16
_SUFFIX = ".parquet"
NO_RANGES = np.zeros((0, 2), dtype=np.int64)
"""No ranges of sequences."""


class SeqRanges(Protocol):
    """Ranges of sequences, read on demand."""

    def read(self) -> np.ndarray:
        """The ranges, ascending and disjoint, both ends inclusive; shape (n, 2)."""


@dataclass(frozen=True)
class Counters:
    """The counters that commits carry in addition to files (docs/semantics/storage.md).

    None of them ever falls within an epoch; a purge of a topic begins a new epoch without counters.
    """

    next_seq: Mapping[int, int] = field(default_factory=dict)
    """Partition → the next sequence to assign."""
    open_base: Mapping[int, int] = field(default_factory=dict)
    """Partition → the base of the segment that appends go to."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """Writer → the number of its last batch."""
    edits: Mapping[str, int] = field(default_factory=dict)
    """`CONSUMERS` → the number of times that a consumer was created, edited or deleted; `RELEASED`
    → the number of the record; `EPOCH` → the epoch; `RUN` → the start of the last recorded run that
    committed; `CLAIMS` and `STAGING_CLAIMS` → the numbers of claims on dead files, and on files
    staged and never committed; `DROPPED` → when the stream was dropped; `GENERATION` → the epoch in
    which the table began; `ARCHIVE_HEAD` → the newest manifest of its archive; `HISTORY_HEAD` → the link of the last
    chained run; `HOLDS` → the number of records of legal holds; `REPLAY` → the record of a replay."""

    removed: Mapping[int, int] = field(default_factory=dict)
    """Partition → the highest sequence that commits removed from the table; empty in tables of earlier versions."""

    @property
    def consumers(self) -> int:
        """The number of times that a consumer was created, edited or deleted."""
        return self.edits.get(CONSUMERS, 0)

    @property
    def holds(self) -> int:
        """The number of records of legal holds that the log counts: of those placed, and of those released."""
        return self.edits.get(HOLDS, 0)

    @property
    def replay(self) -> int:
        """The number of the record from which the next pass goes on with its replay; 0: there is none."""
        return self.edits.get(REPLAY, 0)

    @property
    def released(self) -> int:
        """The number of an earlier build's record of row tombstones (deleted rows in live files); 0: no record."""
        return self.edits.get(RELEASED, 0)

    @property
    def claims(self) -> int:
        """The number of claims on dead files about to be deleted (decision 0035)."""
        return self.edits.get(CLAIMS, 0)

    @property
    def staging_claims(self) -> int:
        """The number of claims on files staged and never committed."""
        return self.edits.get(STAGING_CLAIMS, 0)

    @property
    def last_run_ns(self) -> int | None:
        """The start of the last recorded run that committed, nanoseconds since the epoch; None: not known."""
        return self.edits.get(RUN)

    @property
    def dropped_ns(self) -> int:
        """The instant at which the stream was dropped, nanoseconds since the epoch; 0: not dropped."""
        return self.edits.get(DROPPED, 0)

    @property
    def generation(self) -> int:
        """The epoch in which the table began, after a drop of its predecessor; 0: it is the first table."""
        return self.edits.get(GENERATION, 0)

    @property
    def archive_head(self) -> int:
        """The number of the newest manifest of the table's archive (`stores.archive_manifest`); 0: it has none."""
        return self.edits.get(ARCHIVE_HEAD, 0)

    @property
    def history_head(self) -> int:
        """The number of the link of the last run that committed (`history.chain`); 0: no run is chained."""
        return self.edits.get(HISTORY_HEAD, 0)

    @property
    def epoch(self) -> int:
        """The epoch of the other counters; 0: the topic was never purged."""
        return self.edits.get(EPOCH, 0)


@dataclass(frozen=True)
class ExpectedStats:
    """The statistics that the log or the cache records for a data file; None where none is recorded."""

    messages: int | None = None
    bytes: int | None = None
    min_seq: int | None = None
    max_seq: int | None = None
    min_ts_ns: int | None = None
    max_ts_ns: int | None = None


@dataclass(frozen=True)
class DataFile:
    """One Parquet file of a segment, with its locations for tasks."""

    path: str
    """Relative to `messages/`: the file's name in the table."""
    partition: int
    segment: int
    location: str
    """The current location of the file: a local path or an object-store URI."""
    digest_location: str
    """The location of its subject digest (`SUBJECT_COUNTS`); a lost digest costs time, never correctness."""
    claim: ExpectedStats = ExpectedStats()
    """The statistics that the file must have; otherwise it is not the committed file."""
    stream: str = ""
    """The stream of the file, for errors; empty: none, as for a copy in an archive."""
    later: str | None = None
    """The location of the file after a rival's commit has removed it, if it differs."""
    hidden: np.ndarray | SeqRanges = field(default_factory=lambda: NO_RANGES, compare=False)
    """Sequences of rows hidden from readers, by a deletion vector or in an archived copy: ascending, disjoint ranges,
    both ends inclusive, shape (n, 2); or their location."""
    sha256: str | None = field(default=None, compare=False)
    """The SHA-256 of its bytes, taken while they were written; None: this process did not write it."""

    @property
    def hides_rows(self) -> bool:
        """Whether the file has rows hidden from readers."""
        return not isinstance(self.hidden, np.ndarray) or len(self.hidden) > 0

    def named(self, path: str) -> DataFile:
        """The file under another name in the same directory."""
        location, digest = (
            f"{place.rpartition('/')[0]}/{name.rpartition('/')[2]}"
            for place, name in ((self.location, data_path(path)), (self.digest_location, path))
        )
        return replace(self, path=path, location=location, digest_location=digest)

    def of_attempt(self) -> DataFile:
        """The file of one attempt of a task, under a name unique to the attempt.

        Engines may retry a task or run it speculatively, and an abandoned attempt may continue to
        write. No attempt may touch a file that another attempt has written and a commit has named.
        """
        attempt = secrets.token_hex(_ATTEMPT_DIGITS // 2)
        suffix = "" if vector_place(self.path) else _SUFFIX
        return self.named(f"{slot_of(self.path)}{attempt}{suffix}")


def slot_of(path: str) -> str:
    """The path prefix shared by all attempts to write one staging file, and by no other path.

    The last 16 hex digits of a file's name, or of its vector's, identify the attempt:

    >>> slot_of("partition=0/segment=1/0123456789abcdef" + "5ca1ab1e5ca1ab1e.parquet")
    'partition=0/segment=1/0123456789abcdef'
    """
    suffix = "" if vector_place(path) else _SUFFIX
    return path[: -_ATTEMPT_DIGITS - len(suffix)]


@dataclass(frozen=True)
class ReadCount:
    """Data files opened and bytes read from them."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: ReadCount) -> ReadCount:
        """Add two counts."""
        return ReadCount(self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True)
class Inventory:
    """A stream at one version of its table, with full statistics of every live file."""

    stream: str
    table_id: str
    version: int
    files: pa.Table
    """Shape `retention.schemas.files.FILE_STATS`, sorted by partition, segment, lowest sequence, path."""
    counters: Counters
    read: ReadCount = ReadCount()
    """The reads for statistics that neither the log nor a cache had."""
