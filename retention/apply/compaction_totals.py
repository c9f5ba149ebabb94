"""Running totals of a stream's compactions: the write amplification of its messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.storage.crash_points import Step
from retention.storage.sidecar import JsonCodec, Sidecar
from retention.stores.file_paths import merged_mask


@dataclass(frozen=True)
class CompactionTotals:
    """The bytes that compactions of a stream have read and written since the first one, or since the note was lost."""

    came: int = 0
    """Bytes of files merged for the first time."""
    written: int = 0
    """Bytes of files that compactions wrote."""

    @property
    def amplification(self) -> float | None:
        """The average number of writes of a byte: the first, and those by compactions; None: nothing was merged yet."""
        return 1 + self.written / self.came if self.came else None

    def with_merged(self, files: Iterable[pa.Table], written: int) -> CompactionTotals:
        """The totals after some merges.

        Args:
            files: the merged files; `path` and `file_bytes`.
            written: the bytes of the files that replace them.
        """
        came = sum(
            pc.sum(table["file_bytes"].filter(pc.invert(merged_mask(table["path"])))).as_py() or 0
            for table in files
        )
        return CompactionTotals(self.came + came, self.written + written)


def compaction_totals(opened: OpenedStream) -> Sidecar[CompactionTotals]:
    """The note of a stream's totals; a writer holds the maintenance lease."""
    codec = JsonCodec[CompactionTotals](vars, _totals)
    place = opened.layout.engine_path("compacted.json")
    return Sidecar(place, codec, Step.COMPACTION_COUNTED)


def _totals(_: object, fields: Mapping[str, Any]) -> CompactionTotals:
    return CompactionTotals(int(fields["came"]), int(fields["written"]))
