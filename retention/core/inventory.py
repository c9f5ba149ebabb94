"""The inventory of a stream: its data files with their statistics, and the counters of its log."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from retention.core.counters import Counters
from retention.core.read_count import ReadCount
from retention.core.vector_paths import data_path, vector_place

_ATTEMPT_DIGITS = 16
_SUFFIX = ".parquet"
NO_RANGES = np.zeros((0, 2), dtype=np.int64)
"""No ranges of sequences."""


class SeqRanges(Protocol):
    """Ranges of sequences, read on demand."""

    def read(self) -> np.ndarray:
        """The ranges, ascending and disjoint, both ends inclusive; shape (n, 2)."""


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
class Inventory:
    """A stream at one version of its table, with full statistics of every live file."""

    stream: str
    table_id: str
    version: int
    files: pa.Table
    """Shape `retention.schemas.files.FILE_STATS`, sorted by partition, segment, lowest sequence, path."""
    counters: Counters
    read: ReadCount = field(default_factory=ReadCount)
    """The reads for statistics that neither the log nor a cache had."""
