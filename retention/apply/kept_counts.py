"""The messages and bytes after a change, as fields of a run's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.prefix import TailTotals

if TYPE_CHECKING:
    from retention.apply.change import Change


def kept_counts(files: pa.Table, change: Change, tail: TailTotals) -> dict[str, int]:
    """Count what a change leaves; nothing, if it removes files that are not there, which its commit refuses.

    Args:
        files: the files before the change, shape `FILE_STATS`.
        change: the files to remove and to add.
        tail: the totals of files beyond `files`.
    """
    kept = {
        f"kept_{name}": getattr(tail, name)
        + _sum(files, name)
        - _sum(change.remove, name)
        + _sum(change.add, name)
        for name in ("messages", "bytes")
    }
    return kept if min(kept.values()) >= 0 else {}


def _sum(files: pa.Table, name: str) -> int:
    return int(pc.sum(files[name], min_count=0).as_py())
