"""The last value of each subject, found in subject digests and read only from the files that contain it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.subject_counts import counts_in_pieces
from retention.context.topic import refuse_topic
from retention.core import kv
from retention.core.payload_preview import preview
from retention.core.spans import spans_of
from retention.core.spoken_commands import command
from retention.core.subjects import matching_mask
from retention.core.units import format_instant
from retention.datafile.row_groups import pick_rows
from retention.inspect.last_of_subjects import LastOfSubjects
from retention.inspect.messages import check_filter, files_of_span
from retention.ports import Store
from retention.schemas.files import FILE_STATS
from retention.schemas.messages import MESSAGES

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

_READ = ("seq", "subject", "ts_ns", "time", "headers", "payload")
LATEST = pa.schema(
    [
        *(MESSAGES.field(name) for name in ("subject", "seq", "ts_ns", "time")),
        pa.field("operation", pa.string(), nullable=False),
        *(MESSAGES.field(name) for name in ("headers", "payload")),
    ]
)
"""One row per subject, its last message; `operation` is that message's effect: `put`, `delete` or `purge`."""

_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Latest:
    """The last value of each subject at one version of a stream; reads are lazy."""

    stream: str
    store: Store
    files: pa.Table
    """The files of the inventory, shape `FILE_STATS`."""
    seqs: np.ndarray
    """The last sequence of each subject, ascending."""

    def __len__(self) -> int:
        """The number of subjects, including those with a deletion as their last message."""
        return len(self.seqs)

    def batches(self) -> Iterator[pa.Table]:
        """Tables of shape `LATEST`, ascending by sequence; one span of files is in memory at a time."""
        for rows in pick_latest(self.store, self.files, self.seqs, _READ):
            whole = rows.append_column("operation", kv.operations(rows["headers"]))
            yield whole.select(LATEST.names).cast(LATEST)

    def newest(self, count: int) -> pa.Table:
        """The rows with the highest sequences, newest first."""
        last = replace(self, seqs=self.seqs[max(len(self) - count, 0) :])
        return last.to_arrow().sort_by([("seq", "descending")])

    def to_arrow(self) -> pa.Table:
        """All rows, shape `LATEST`."""
        return pa.concat_tables([LATEST.empty_table(), *self.batches()])

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a DataFrame, one subject per row, ascending by sequence."""
        return self.to_arrow().to_pandas()


def latest_of(opened: OpenedStream, subject: str | None = None) -> Latest:
    """Find the last value of each subject, or of those that a filter matches.

    Raises:
        UsageError: it is a topic, or the subject filter is not valid.
        DamagedError: the log, or a required file, is damaged.
    """
    refuse_topic(
        opened.config,
        "which has messages without subjects",
        f"{command('messages', opened.name)} shows them",
    )
    check_filter(subject)
    store = opened.store
    files = FILE_STATS.empty_table()
    if store.exists():
        files = store.inventory(store.snapshot()).files
    filters = () if subject is None else (subject,)
    return Latest(opened.name, store, files, last_seqs(store, files, filters))


def last_seqs(store: Store, files: pa.Table, filters: Collection[str] = ()) -> np.ndarray:
    """The last sequence of each subject in an inventory's files, ascending; with filters, of matching subjects only.

    Raises:
        StorageError: there are very many subjects, and the directory of temporary files is full.
    """
    with closing(LastOfSubjects()) as last:
        for counts in counts_in_pieces(store, files):
            matching = (
                counts.filter(matching_mask(counts["subject"], filters)) if filters else counts
            )
            last.add(matching)
        return last.seqs()


def pick_latest(
    store: Store, files: pa.Table, seqs: np.ndarray, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The rows with these ascending sequences, in order, one table per span of files that has some."""
    spans = spans_of(files)
    first = np.searchsorted(seqs, spans.min_seq)
    end = np.searchsorted(seqs, spans.max_seq, side="right")
    for span in np.flatnonzero(first < end).tolist():
        wanted = seqs[first[span] : end[span]]
        inside = files_of_span(store, files, spans, span)
        parts = [pick_rows(file, wanted, columns) for file in inside]
        yield pa.concat_tables(parts).sort_by("seq")


def latest_text(latest: Latest) -> list[str]:
    """The newest of the last values as text, newest first."""
    rows = [
        f"{row['seq']:>12}  {row['time']:<30}  {row['subject']}  {row['operation']}  {row['value']}"
        for row in shown_rows(latest)
    ]
    return [f"{latest.stream}: {latest_headline(latest)}", *(row.rstrip() for row in rows)]


def latest_headline(latest: Latest) -> str:
    """The words for the number of subjects, and of those shown."""
    subjects = f"{len(latest):,} subject{'' if len(latest) == 1 else 's'}"
    return f"{subjects}, the newest {_SHOWN}" if len(latest) > _SHOWN else subjects


def shown_rows(latest: Latest) -> list[dict[str, str]]:
    """The newest rows as text: subject, sequence, time, operation and the beginning of the value."""
    return [
        {
            "subject": row["subject"],
            "seq": f"{row['seq']:,}",
            "time": format_instant(row["ts_ns"]),
            "operation": row["operation"],
            "value": preview(row["payload"]),
        }
        for row in latest.newest(_SHOWN).to_pylist()
    ]
