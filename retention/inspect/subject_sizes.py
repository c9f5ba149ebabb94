"""The subjects of a stream with the most messages, counted from subject digests."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.subject_counts import counts_in_pieces
from retention.schemas.files import FILE_STATS, SUBJECT_COUNTS

MOST_SUBJECTS = 1 << 22
"""A stream with more subjects is not counted: their totals would fill the memory."""
_LEAST_FOLDED = 1 << 20
"""The minimum number of rows of digests that are added up at once."""
_TOTAL = pa.schema([SUBJECT_COUNTS.field(name) for name in ("subject", "messages")])


@dataclass(frozen=True)
class SubjectSize:
    """A subject and its messages."""

    subject: str
    messages: int


def largest_subjects(opened: OpenedStream, most: int) -> list[SubjectSize] | None:
    """The subjects with the most messages, the largest first; None: there are more than `MOST_SUBJECTS`.

    Raises:
        DamagedError: a data file whose digest is lost cannot be read.
    """
    files = FILE_STATS.empty_table()
    if opened.table.exists():
        files = opened.store.inventory(opened.store.snapshot()).files
    totals, pending = _TOTAL.empty_table(), list[pa.Table]()
    for counts in counts_in_pieces(opened.store, files):
        pending.append(counts.select(_TOTAL.names).cast(_TOTAL))
        if sum(map(len, pending)) >= max(_LEAST_FOLDED, len(totals)):
            totals, pending = _added([totals, *pending]), []
            if len(totals) > MOST_SUBJECTS:
                return None
    totals = _added([totals, *pending])
    order = [("messages", "descending"), ("subject", "ascending")]
    first = totals.take(pc.select_k_unstable(totals, k=min(most, len(totals)), sort_keys=order))
    return [SubjectSize(**row) for row in first.to_pylist()]


def _added(parts: list[pa.Table]) -> pa.Table:
    sums = pa.concat_tables(parts).group_by("subject").aggregate([("messages", "sum")])
    return pa.table([sums["subject"], sums["messages_sum"]], schema=_TOTAL)
