"""Extra subjects: the subjects beyond a limit of subjects, and their messages in files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array, Spans
from retention.rules.digest_batches import for_lookups
from retention.schemas.files import SUBJECT_COUNTS_OF_FILES

if TYPE_CHECKING:
    from retention.rules.rule import SubjectSource

_FILES_AT_A_TIME = 64


@dataclass(frozen=True)
class ExtraSubjects:
    """The messages of subjects beyond a limit, and the kept subjects in older files."""

    messages: Array
    """The number of these messages in each file, int64."""
    names: pa.Array
    """The kept subjects, string."""
    lowest: int
    """The lowest last sequence of a kept subject; every message from there on is on a kept subject."""
    file: Array
    """The row number of a file with lower sequences, once for each kept subject in it, ascending."""
    subject: Array
    """The number of that subject in `names`."""

    def messages_in(self, spans: Spans) -> Array:
        """The number of messages of extra subjects in each span, int64."""
        sums = np.zeros(len(spans), dtype=np.int64)
        np.add.at(sums, spans.span_of_file, self.messages)
        return sums

    def kept_in(self, spans: Spans, span: int) -> pa.Array:
        """The kept subjects of a span with messages below `lowest`, each once."""
        first, end = np.searchsorted(self.file, spans.first_file[span : span + 2])
        return self.names.take(pa.array(np.unique(self.subject[first:end])))


def extra_subjects(limit: int, source: SubjectSource) -> ExtraSubjects | None:
    """Find the subjects beyond a limit; None: the stream has no more subjects.

    The subjects with the highest last sequences are kept. A limit of 2:

        file      0      1
        subjects  a b    a c        last sequences: c, then a, then b
        extra       b

    Memory holds the kept subjects, and the digests of some files.

    Args:
        limit: the maximum number of subjects, at least 1.
        source: the digests of the stream.

    Raises:
        DamagedError: a data file without a digest cannot be read.
    """
    newest = _newest(limit, source)
    if newest is None:
        return None
    names, lowest = newest["subject"].combine_chunks(), pc.min(newest["last_seq"]).as_py()
    files = np.flatnonzero(source.files["min_seq"].to_numpy() < lowest)
    messages = np.zeros(source.files.num_rows, dtype=np.int64)
    kept = [(np.zeros(0, np.int64), np.zeros(0, np.int32))]
    for counts in for_lookups(_digests(source, files), len(names)):
        number = pc.index_in(counts["subject"], value_set=names)
        is_kept = number.is_valid().to_numpy()
        of_file = counts["file"].to_numpy()
        np.add.at(messages, of_file[~is_kept], counts["messages"].to_numpy()[~is_kept])
        kept.append((of_file[is_kept], number.drop_null().to_numpy()))
    file, subject = (np.concatenate(column) for column in zip(*kept, strict=True))
    return ExtraSubjects(messages, names, lowest, file, subject)


def _newest(limit: int, source: SubjectSource) -> pa.Table | None:
    """The subjects with the highest last sequences, up to a limit, with `last_seq`; None: there are no others.

    Files are read from the last one back, until no earlier file can change the result.
    """
    highest = np.maximum.accumulate(source.files["max_seq"].to_numpy())
    kept = SUBJECT_COUNTS_OF_FILES.empty_table().select(["subject", "last_seq"])
    more = False
    for start in range(len(highest), 0, -_FILES_AT_A_TIME):
        if len(kept) == limit and pc.min(kept["last_seq"]).as_py() > highest[start - 1]:
            return kept
        counts = source.digests(max(start - _FILES_AT_A_TIME, 0), start)
        both = pa.concat_tables([kept, counts.select(["subject", "last_seq"])])
        last = both.group_by("subject").aggregate([("last_seq", "max")])
        more |= len(last) > limit
        order = pc.select_k_unstable(last, limit, [("last_seq_max", "descending")])
        newest = last.take(order)
        kept = pa.table([newest["subject"], newest["last_seq_max"]], schema=kept.schema)
    return kept if more else None


def _digests(source: SubjectSource, files: Array) -> Iterator[pa.Table]:
    """The digests of some files, a few neighbours at a time."""
    for first in range(0, source.files.num_rows, _FILES_AT_A_TIME):
        end = min(first + _FILES_AT_A_TIME, source.files.num_rows)
        if np.any((files >= first) & (files < end)):
            yield source.digests(first, end)
