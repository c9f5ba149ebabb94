"""A purge of deleted keys: old deletions are removed with their key, young ones are kept alone (KV PurgeDeletes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array, Spans
from retention.core.units import spell_duration
from retention.errors import UsageError
from retention.rules import PURGE
from retention.rules.rule import RowRule
from retention.rules.verdicts import Verdicts
from retention.schemas.deadlines import NEVER

_CUTS = pa.schema([pa.field("subject", pa.string()), pa.field("below", pa.int64())])


@dataclass(frozen=True)
class PurgeDeletes:
    """Remove every subject with a deletion as its last message, but keep the deletion itself if it is young."""

    older_than_ns: int
    """The age at which the deletion itself is removed, nanoseconds; 0: immediately."""
    rule: ClassVar[str] = PURGE
    erase: ClassVar[bool] = False
    """False: the removal can be undone."""

    @property
    def wording(self) -> str:
        """The request in a few words."""
        if not self.older_than_ns:
            return "purge of deleted keys"
        return f"purge of deleted keys, deletions of the last {spell_duration(self.older_than_ns)} are kept"


@dataclass(frozen=True)
class BelowCuts(RowRule):
    """The rows of one span below the cuts of their subjects."""

    cuts: pa.Table
    """`subject` and `below`: the messages of the subject below that sequence are removed."""
    rule = PURGE
    columns = ("subject",)

    def takes(self, rows: pa.Table) -> Array:
        """A mask of these rows."""
        cuts = self.cuts
        at = pc.index_in(rows["subject"], value_set=cuts["subject"].combine_chunks())
        below = pc.fill_null(cuts["below"].combine_chunks().take(at.combine_chunks()), 0)
        return np.asarray(rows["seq"].to_numpy() < below.to_numpy())


def purge_deletes_request(older_than_ns: int) -> PurgeDeletes:
    """Make the request to purge deleted keys.

    Raises:
        UsageError: the age is negative.
    """
    if older_than_ns < 0:
        raise UsageError("an age must not be negative; 0 removes every deletion")
    return PurgeDeletes(older_than_ns)


def cuts_of(deletions: pa.Table, last_seqs: pa.Table, cutoff_ns: int) -> pa.Table:
    """The cuts of all deleted subjects: after an old deletion, or at a young one.

    Args:
        deletions: shape `DELETIONS`, of the whole stream.
        last_seqs: `subject` and `last_seq`, at least for the subjects of deletions.
        cutoff_ns: the latest time of an old deletion, nanoseconds since the epoch.

    Returns:
        `subject`, each once, and `below`.
    """
    at = pc.index_in(deletions["seq"], value_set=last_seqs["last_seq"].combine_chunks())
    last = deletions.filter(at.is_valid())
    is_old = pc.less_equal(last["ts_ns"], cutoff_ns)
    return pa.table([last["subject"], pc.if_else(is_old, NEVER, last["seq"])], schema=_CUTS)


def below_cuts(cuts: pa.Table, counts: pa.Table, spans: Spans) -> Verdicts:
    """Find the spans with messages of deleted subjects; their rows decide.

    Args:
        cuts: the result of `cuts_of`.
        counts: subject digests of all files: `file` and `subject`.
        spans: the spans of the same files.
    """
    subject = pc.index_in(counts["subject"], value_set=cuts["subject"].combine_chunks())
    named = np.flatnonzero(subject.is_valid().to_numpy())
    span = spans.span_of_file[counts["file"].to_numpy()[named]]
    subjects = subject.to_numpy(zero_copy_only=False)[named].astype(np.int64)
    parts = {
        number: BelowCuts(cuts.take(pa.array(np.unique(subjects[span == number]))))
        for number in np.unique(span).tolist()
    }
    return Verdicts(PURGE, np.zeros(len(spans), dtype=bool), parts)
