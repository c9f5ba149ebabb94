"""The plan of a compaction as a value: which files are merged into which segment, why, and what that saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

Reason = Literal["small_files", "small_segments", "hollow_segments", "dead_rows"]
"""`small_files`: a segment has many; `small_segments`: many small sealed neighbours fit into one small segment;
`hollow_segments`: sealed neighbours of which little is left fit into one; `dead_rows`: a file still holds rows that
nobody reads any more."""
_OPENING_BYTES = 1 << 20
"""The bytes whose reading costs a reader about as much as opening one more file."""
BATCH_BYTES = 1 << 30
"""About the bytes that one commit rewrites: what is done is kept when the time is up, or a later part fails."""
MOST_BATCHES = 100
"""The most commits of one compaction, about."""


@dataclass(frozen=True)
class Merge:
    """Files whose rows go into new files of one segment."""

    reason: Reason
    files: pa.Table
    """Shape `FILE_STATS`, in order of partition, segment and sequence; all of one partition."""
    spans: tuple[int, ...]
    """Numbers of files that belong together, in order: sequences of no others interleave."""
    files_after: int
    """The files in their place, at most."""
    dead_bytes: int = 0
    """Bytes, by the broker's accounting, of rows in the files that nobody reads any more."""

    @property
    def partition(self) -> int:
        """The partition of the files."""
        return int(self.files["partition"][0].as_py())

    @property
    def segment(self) -> int:
        """The base of the segment that takes them: the lowest of theirs."""
        return int(self.files["segment"][0].as_py())

    @property
    def segments(self) -> int:
        """The number of segments that become one."""
        return len(self.files["segment"].unique())

    @property
    def files_saved(self) -> int:
        """The files that are fewer afterwards, at least."""
        return self.files.num_rows - self.files_after

    @cached_property
    def bytes_rewritten(self) -> int:
        """The length of the files together."""
        return int(pc.sum(self.files["file_bytes"], min_count=0).as_py())

    @property
    def benefit(self) -> float:
        """The bytes that reading everything once is spared, a file counting as `_OPENING_BYTES`, per byte rewritten."""
        return (self.files_saved * _OPENING_BYTES + self.dead_bytes) / max(self.bytes_rewritten, 1)

    def as_json(self) -> dict[str, Any]:
        """The merge as JSON values, without its files."""
        return {
            "reason": self.reason,
            "partition": self.partition,
            "segment": self.segment,
            "segments": self.segments,
            "first_seq": pc.min(self.files["min_seq"]).as_py(),
            "last_seq": pc.max(self.files["max_seq"]).as_py(),
            "files": self.files.num_rows,
            "files_after": self.files_after,
            "bytes_rewritten": self.bytes_rewritten,
            "dead_bytes": self.dead_bytes,
        }


@dataclass(frozen=True)
class LeftFiles:
    """Files that would be merged if something did not stand against it."""

    files: pa.Table
    """Shape `FILE_STATS`."""
    why: str
    """The reason in one phrase."""

    def as_json(self) -> dict[str, Any]:
        """The paths and the reason as JSON values."""
        return {"files": self.files["path"].to_pylist(), "why": self.why}


@dataclass(frozen=True)
class CompactionPlan:
    """The merges that pay in one stream at one version; made by `planners.compaction`."""

    stream: str
    table_id: str
    version: int
    epoch: int
    released: int
    """The number of the record of row tombstones that it rests on."""
    merges: tuple[Merge, ...] = ()
    """The best first."""
    files: int = 0
    """The live files of the stream."""
    left: tuple[LeftFiles, ...] = ()

    @property
    def files_saved(self) -> int:
        """The files that are fewer afterwards, at least."""
        return sum(merge.files_saved for merge in self.merges)

    @property
    def bytes_rewritten(self) -> int:
        """The length of all files that are rewritten."""
        return sum(merge.bytes_rewritten for merge in self.merges)

    @property
    def dead_bytes(self) -> int:
        """Bytes, by the broker's accounting, of rows that end."""
        return sum(merge.dead_bytes for merge in self.merges)

    def batches(self) -> Iterator[Sequence[Merge]]:
        """The merges in their order, in parts that one commit each carries out."""
        most = max(BATCH_BYTES, self.bytes_rewritten // MOST_BATCHES)
        batch: list[Merge] = []
        size = 0
        for merge in self.merges:
            if batch and size + merge.bytes_rewritten > most:
                yield batch
                batch, size = [], 0
            batch.append(merge)
            size += merge.bytes_rewritten
        if batch:
            yield batch

    def within(self, max_bytes: int | None) -> CompactionPlan:
        """The plan with the best of its merges that rewrite at most so many bytes; None: with all."""
        if max_bytes is None:
            return self
        left, taken = max_bytes, []
        for merge in self.merges:
            if merge.bytes_rewritten <= left:
                taken.append(merge)
                left -= merge.bytes_rewritten
        return replace(self, merges=tuple(taken))

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "stream": self.stream,
            "version": self.version,
            "files": self.files,
            "files_saved": self.files_saved,
            "bytes_rewritten": self.bytes_rewritten,
            "dead_bytes": self.dead_bytes,
            "merges": [merge.as_json() for merge in self.merges],
            "left": [left.as_json() for left in self.left],
        }
