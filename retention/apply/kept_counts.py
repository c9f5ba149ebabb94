"""The messages and bytes after a change, as fields of a run's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.core.column_values import total
from retention.core.prefix import TailTotals

if TYPE_CHECKING:
    import pyarrow as pa

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
        + total(files[name])
        - total(change.remove[name])
        + total(change.add[name])
        for name in ("messages", "bytes")
    }
    return kept if min(kept.values()) >= 0 else {}
