"""Deleted subjects of a stored stream: deletions from the files that may have old ones, and digests of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.read_count import ReadCount
from retention.engines.select import Engines
from retention.plan.remaining import RemainingMessages, RemainingRow
from retention.planners.rows import Deletions, StreamRows
from retention.rules.deleted_subjects import DeletedSubjects, deleted_subjects_of
from retention.rules.digest_batches import for_lookups
from retention.schemas.deadlines import NEVER
from retention.schemas.files import DELETIONS, SUBJECT_COUNTS_OF_FILES
from retention.storage.files import read_parallelism
from retention.storage.parallel import in_threads
from retention.stores.sidecar.deletions import find_deletions, kept_deletions

_DIGESTS_AT_A_TIME = 64


def deleted_subjects(
    remaining: RemainingMessages, until_ns: int, limit: int | None, rows: StreamRows
) -> DeletedSubjects | None:
    """Find the deleted subjects of a stream; None if it has no message stored by `until_ns`.

    Only files with an old enough message are searched for deletions, and digests are read only if
    there are any. Memory holds the digests of a few files, and the entries of subjects with a
    deletion.

    Raises:
        DamagedError: a file that had to be read is damaged.
    """
    oldest_ns = remaining.files["min_ts_ns"].to_numpy()
    old = np.flatnonzero(oldest_ns <= until_ns)
    if not len(old):
        return None
    deletions = rows.deletions(remaining, [RemainingRow(row) for row in old.tolist()])
    unseen_ns = oldest_ns.copy()
    unseen_ns[np.setdiff1d(old, deletions.unseen)] = NEVER
    subjects = pc.unique(deletions.messages["subject"])
    counts = counts_of(subjects, remaining, rows)
    deleted = deleted_subjects_of(deletions.messages, counts, limit, unseen_ns)
    return replace(deleted, read=deletions.read)


def counts_of(subjects: pa.Array, remaining: RemainingMessages, rows: StreamRows) -> pa.Table:
    """Digest entries of some subjects in the remaining messages; shape `SUBJECT_COUNTS_OF_FILES`.

    Memory holds the digests of a few files, and the entries of these subjects.

    Raises:
        DamagedError: a data file whose digest is lost cannot be read.
    """
    if not len(subjects):
        return SUBJECT_COUNTS_OF_FILES.empty_table()
    batches = for_lookups(_digests(remaining, rows), len(subjects))
    kept = (table.filter(pc.is_in(table["subject"], value_set=subjects)) for table in batches)
    return pa.concat_tables([SUBJECT_COUNTS_OF_FILES.empty_table(), *kept])


def digests_between(
    remaining: RemainingMessages, rows: StreamRows, first: int, end: int
) -> pa.Table:
    """Subject digests of neighbouring files; `file` is the row number among all files."""
    counts = remaining.subject_counts(rows, RemainingRow(first), RemainingRow(end))
    return counts.set_column(
        0, SUBJECT_COUNTS_OF_FILES.field("file"), pc.add(counts["file"], first)
    )


def _digests(remaining: RemainingMessages, rows: StreamRows) -> Iterator[pa.Table]:
    """Subject digests of the remaining messages, a few files at a time."""
    count = remaining.files.num_rows
    for first in range(0, count, _DIGESTS_AT_A_TIME):
        yield digests_between(remaining, rows, first, min(first + _DIGESTS_AT_A_TIME, count))


def known_deletions(
    opened: OpenedStream, remaining: RemainingMessages, wanted: Sequence[RemainingRow]
) -> Deletions:
    """The known deletions of some files, from earlier searches; no data file is opened."""
    return joined(wanted, known_by_file(opened, remaining, wanted))


def known_by_file(
    opened: OpenedStream, remaining: RemainingMessages, wanted: Sequence[RemainingRow]
) -> list[pa.Table | None]:
    """The known deletions of each of some files; None: the file was never searched."""
    if not wanted:
        return []
    files = _files(opened, remaining, wanted)
    return list(in_threads(kept_deletions, files, read_parallelism(opened.root)))


def joined(wanted: Sequence[RemainingRow], known: Sequence[pa.Table | None]) -> Deletions:
    """The deletions of all of some files."""
    tables = [table for table in known if table is not None]
    unseen = tuple(row for row, table in zip(wanted, known, strict=True) if table is None)
    return Deletions(pa.concat_tables([DELETIONS.empty_table(), *tables]), unseen)


@labelled(step="find deleted subjects")
def all_deletions(
    opened: OpenedStream,
    remaining: RemainingMessages,
    wanted: Sequence[RemainingRow],
    engines: Engines,
) -> Deletions:
    """The deletions of some files; files not searched before are read on a suitable engine.

    Raises:
        DamagedError: a file cannot be read.
    """
    known = known_deletions(opened, remaining, wanted)
    if not known.unseen:
        return known
    lengths = remaining.files["file_bytes"].to_numpy()
    weights = [int(lengths[row]) for row in known.unseen]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    answers = engine.map(find_deletions, _files(opened, remaining, known.unseen), weights)
    tables, reads = zip(*answers, strict=True)
    return Deletions(pa.concat_tables([known.messages, *tables]), (), sum(reads, ReadCount()))


def _files(
    opened: OpenedStream, remaining: RemainingMessages, wanted: Sequence[RemainingRow]
) -> list[DataFile]:
    return opened.store.data_files(remaining.stored.take(pa.array(wanted, pa.int64())))
