"""Deleted subjects: subjects with a deletion as their last message, and their messages in files."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.read_count import ReadCount
from retention.core.spans import Array, Spans
from retention.schemas.deadlines import NEVER

_HIGHEST = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class DeletedSubjects:
    """The subjects with a known deletion as their last message.

    The messages of each subject in each file have one entry in `file`, `subject`, `stored` and
    `left`, ascending by `file`.
    """

    names: pa.Array
    """The subjects, string."""
    deleted_ns: Array
    """The time of the last message of each subject, nanoseconds since the epoch."""
    file: Array
    """The file's row number."""
    subject: Array
    """The subject's number in `names`."""
    stored: Array
    """The number of its messages in the file."""
    left: Array
    """The number of these messages within a limit per subject."""
    unseen_ns: Array
    """For each file not searched for deletions: the time of its oldest message; `NEVER` for other files."""
    read: ReadCount = field(default_factory=ReadCount)
    """The cost of the search."""

    def until(self, cutoff_ns: int) -> Array:
        """A mask of the entries of subjects deleted by `cutoff_ns`."""
        mask: Array = self.deleted_ns[self.subject] <= cutoff_ns
        return mask

    def names_in(self, spans: Spans, span: int, cutoff_ns: int) -> pa.Array:
        """The subjects deleted by `cutoff_ns` with messages in a span, each once."""
        first, end = np.searchsorted(self.file, spans.first_file[span : span + 2])
        inside = np.unique(self.subject[first:end])
        return self.names.take(pa.array(inside[self.deleted_ns[inside] <= cutoff_ns]))

    def unseen_in(self, spans: Spans) -> Array:
        """For each span: the time of the oldest message in files not searched for deletions."""
        return _least(self.unseen_ns, np.arange(len(self.unseen_ns)), spans)

    def deleted_in(self, spans: Spans) -> Array:
        """For each span: the earliest deletion time of its subjects; `NEVER`: none is known."""
        return _least(self.deleted_ns[self.subject], self.file, spans)


def _least(values: Array, file: Array, spans: Spans) -> Array:
    """The minimum of the values of each span's files; `NEVER` for a span without a value."""
    least = np.full(len(spans), NEVER, dtype=np.int64)
    np.minimum.at(least, spans.span_of_file[file], values)
    return least


def deleted_subjects_of(
    deletions: pa.Table, counts: pa.Table, limit: int | None, unseen_ns: Array
) -> DeletedSubjects:
    """Find the subjects with one of these deletions as their last message, by the digests of all files.

    One subject with a deletion as its message 5, and a limit of 2:

        file      0   1         a message 6 in any file, and it would be no deleted subject
        stored    1   2
        last_seq  2   5
        left      0   2

    Args:
        deletions: every deletion in some files: `subject` string, `seq` and `ts_ns` int64.
        counts: subject digests of all files, at least the entries of these subjects: `file` int64,
            ascending; `subject`, once per file; `messages` and `last_seq`.
        limit: the maximum number of messages per subject; None: unlimited.
        unseen_ns: as in `DeletedSubjects`.
    """
    named = counts.filter(pc.is_in(counts["subject"], value_set=pc.unique(deletions["subject"])))
    last = named.group_by("subject").aggregate([("last_seq", "max")])
    at = pc.index_in(last["last_seq_max"], value_set=deletions["seq"].combine_chunks())
    dead = at.is_valid()
    names = last["subject"].filter(dead).combine_chunks()
    deleted_ns = deletions["ts_ns"].take(at.drop_null()).to_numpy()
    number = pc.index_in(named["subject"], value_set=names)
    entries = named.filter(number.is_valid())
    file, stored = (entries[name].to_numpy() for name in ("file", "messages"))
    subject = number.drop_null().to_numpy().astype(np.int64)
    left = _left(subject, stored, _HIGHEST if limit is None else limit)
    return DeletedSubjects(names, deleted_ns, file, subject, stored, left, unseen_ns)


def _left(subject: Array, stored: Array, limit: int) -> Array:
    """The messages of each entry within a limit per subject: the newest of each subject are kept."""
    order = np.lexsort((-np.arange(len(subject)), subject))
    counted = stored[order]
    reached = np.cumsum(counted)
    starts = np.flatnonzero(np.diff(subject[order], prepend=-1))
    before = np.repeat(reached[starts] - counted[starts], np.diff(np.append(starts, len(order))))
    newer = reached - counted - before
    left = np.empty_like(stored)
    left[order] = np.clip(limit - newer, 0, counted)
    return left
