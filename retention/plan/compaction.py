"""The plan of a compaction as a value: the files to merge per segment, the reasons, and the savings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.display import Displayed
from retention.core.json_object import JsonObject

Reason = Literal["small_files", "small_segments", "hollow_segments", "dead_rows"]
"""`small_files`: a segment has many small files; `small_segments`: many small sealed neighbours fit
into one small segment; `hollow_segments`: sealed neighbours with few remaining messages fit into
one segment; `dead_rows`: deletion vectors hide a large share of a file."""
_OPENING_BYTES = 1 << 20
"""The cost of opening a file, as the bytes that a reader could read instead."""
BATCH_BYTES = 1 << 30
"""The approximate bytes that one commit rewrites; finished parts are kept if time runs out or a later part fails."""
MOST_BATCHES = 100
"""The approximate maximum number of commits of one compaction."""


@dataclass(frozen=True)
class Merge:
    """Files to merge into new files of one segment."""

    reason: Reason
    files: pa.Table
    """Shape `FILE_STATS`, in order of partition, segment and sequence; all of one partition."""
    spans: tuple[int, ...]
    """Sizes of groups of files, in order; sequences interleave only within a group."""
    files_after: int
    """The maximum number of files that replace them."""

    @property
    def partition(self) -> int:
        """The partition of the files."""
        return int(self.files["partition"][0].as_py())

    @property
    def segment(self) -> int:
        """The base of the target segment: the lowest base of the sources."""
        return int(self.files["segment"][0].as_py())

    @property
    def segments(self) -> int:
        """The number of segments merged into one."""
        return len(self.files["segment"].unique())

    @property
    def files_saved(self) -> int:
        """The minimum reduction of the number of files."""
        return self.files.num_rows - self.files_after

    @cached_property
    def bytes_rewritten(self) -> int:
        """The total length of the files."""
        return int(pc.sum(self.files["file_bytes"], min_count=0).as_py())

    @property
    def benefit(self) -> float:
        """The bytes saved in a full read, with `_OPENING_BYTES` per file, per byte rewritten."""
        return self.files_saved * _OPENING_BYTES / max(self.bytes_rewritten, 1)

    def as_json(self) -> JsonObject:
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
            "dead_bytes": 0,
        }


@dataclass(frozen=True, repr=False)
class CompactionPlan(Displayed):
    """The worthwhile merges in one stream at one version; made by `planners.compaction`."""

    stream: str
    table_id: str
    version: int
    epoch: int
    merges: tuple[Merge, ...] = ()
    """Best first."""
    files: int = 0
    """The live files of the stream."""

    @property
    def files_saved(self) -> int:
        """The minimum reduction of the number of files."""
        return sum(merge.files_saved for merge in self.merges)

    @property
    def bytes_rewritten(self) -> int:
        """The total length of all files to rewrite."""
        return sum(merge.bytes_rewritten for merge in self.merges)

    def batches(self) -> Iterator[Sequence[Merge]]:
        """The merges in their order, in batches of one commit each."""
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
        """The plan with its best merges, up to a total of rewritten bytes; None: with all."""
        if max_bytes is None:
            return self
        left, taken = max_bytes, []
        for merge in self.merges:
            if merge.bytes_rewritten <= left:
                taken.append(merge)
                left -= merge.bytes_rewritten
        return replace(self, merges=tuple(taken))

    def as_json(self) -> JsonObject:
        """The plan as JSON values."""
        return {
            "stream": self.stream,
            "version": self.version,
            "files": self.files,
            "files_saved": self.files_saved,
            "bytes_rewritten": self.bytes_rewritten,
            "dead_bytes": 0,
            "merges": [merge.as_json() for merge in self.merges],
            "left": [],
        }
