"""DeleteRetention: remove subjects with an old deletion as their last message; no server has this rule.

The rule runs after the limits and before expiry. Head trims and the limit per subject remove the
lowest messages of a subject, so its last message by digests of the stored files is also the last
one after them. Expiry may remove a deletion but keep lower messages, and write a marker in its
place; both are pointless for a subject that is removed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.core.units import format_duration, format_instant
from retention.rules import DELETE_RETENTION
from retention.rules.facts import Facts, spell_age
from retention.rules.rule import (
    Decision,
    PriorRemovals,
    RowRule,
    SubjectFacts,
    SubjectSource,
    TimedRule,
    delayed,
)
from retention.rules.setting import Setting


@dataclass(frozen=True)
class DeleteRetention(TimedRule):
    """A subject is removed if its last message is a deletion with `ts_ns <= cutoff_ns` (as in KV PurgeDeletes)."""

    name: ClassVar[str] = DELETE_RETENTION
    setting: ClassVar[Setting] = Setting("delete_retention", "delete_retention_ns", "ns")
    retention_ns: int
    cutoff_ns: int
    """`as_of - delete_retention`: the latest instant of an old deletion, nanoseconds since the epoch."""
    subjects: SubjectFacts

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule at the instant; None if deletions are kept like other messages."""
        retention_ns = policy.delete_retention_ns
        return (
            None if retention_ns is None else cls(retention_ns, as_of_ns - retention_ns, subjects)
        )

    @classmethod
    def find_subjects(
        cls, policy: Policy, as_of_ns: int, source: SubjectSource, subjects: SubjectFacts
    ) -> SubjectFacts:
        """Find the deleted subjects, if a deletion may be old enough."""
        retention_ns = policy.delete_retention_ns
        if retention_ns is None:
            return subjects
        deleted = source.deleted(as_of_ns - retention_ns, policy.max_msgs_per_subject)
        return replace(subjects, deleted=deleted)

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule is on, because a newer message of a subject may be anywhere."""
        return policy.delete_retention_ns is not None

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the last message on the subject is an old deletion."""
        if policy.delete_retention_ns is None or facts.deleted_ns is None:
            return False
        return facts.as_of_ns - facts.deleted_ns >= policy.delete_retention_ns

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The last message on the subject: whether it is a deletion, and its age."""
        if policy.delete_retention_ns is None:
            return None
        named = f"{cls.name} {format_duration(policy.delete_retention_ns)}"
        return f"{named}: {_last_is(facts)}{_deletion(policy.delete_retention_ns, facts)}"

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The minimum age of the deletions, each the last message on its subject."""
        del as_of_ns
        kept = format_duration(policy.delete_retention_ns or 0)
        return f" {kept}, the last on the subject is a deletion that old"

    def decide(self, spans: Spans, before: PriorRemovals) -> DeleteRetentionDecision:
        """Count removals by digests; spans with possible old deletions in unsearched files need their rows.

        Such a file decides about messages with lower sequences in any file.
        """
        unseen = np.flatnonzero(self._unseen(spans) <= self.cutoff_ns)
        doubtful = np.arange(len(spans)) < (unseen[-1] + 1 if len(unseen) else 0)
        stored, counted = self._counted(spans)
        whole = (counted > 0) & (counted == _behind_limit(spans, self.subjects))
        whole &= ~before.gone & ~before.unclear & ~doubtful
        return DeleteRetentionDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole,
            rows=doubtful & ~before.gone,
            counted=counted,
            unclear=doubtful,
            stored=stored,
            doubtful=doubtful,
        )

    def share(self, spans: Spans, span: int) -> OfDeleted | None:
        """The rule for the rows of one span; None: it has no message of a subject known to be removed."""
        deleted = self.subjects.deleted
        names = None if deleted is None else deleted.names_in(spans, span, self.cutoff_ns)
        return OfDeleted(names) if names is not None and len(names) else None

    def first_due(self, spans: Spans) -> Array:
        """The instant at which the first known deletion, or a message that may be one, is old enough."""
        deleted, unseen = self.subjects.deleted, self._unseen(spans)
        known = unseen if deleted is None else deleted.deleted_in(spans)
        return delayed(np.minimum(known, unseen), self.retention_ns)

    def segment_due(self, segments: Spans, *, alone: bool) -> Array:
        """The instant of the first removal, because a deletion removes messages of any segment."""
        del alone
        return np.full(len(segments), self.first_due(segments).min(initial=np.iinfo(np.int64).max))

    def _unseen(self, spans: Spans) -> Array:
        """For each span: the oldest possible time of a deletion in files not searched for deletions."""
        deleted = self.subjects.deleted
        return spans.min_ts_ns if deleted is None else deleted.unseen_in(spans)

    def _counted(self, spans: Spans) -> tuple[Array, Array]:
        """Messages of each span on subjects known to be removed: all, and those within the limit per subject."""
        deleted = self.subjects.deleted
        if deleted is None:
            nothing = np.zeros(len(spans), dtype=np.int64)
            return nothing, nothing
        goes = deleted.until(self.cutoff_ns)
        at = spans.span_of_file[deleted.file[goes]]
        sums = (
            np.bincount(at, weights=number[goes], minlength=len(spans))
            for number in (deleted.stored, deleted.left)
        )
        stored, left = (counts.astype(np.int64) for counts in sums)
        return stored, left


def _behind_limit(spans: Spans, subjects: SubjectFacts) -> Array:
    """The messages of each span within the limit per subject."""
    return spans.messages - (0 if subjects.excess is None else subjects.excess.messages)


@dataclass(frozen=True, kw_only=True)
class DeleteRetentionDecision(Decision):
    """The decision of digests about deleted subjects."""

    rule: DeleteRetention
    stored: Array
    """Messages of each span on subjects known to be removed; int64."""
    doubtful: Array

    def question(self, span: int) -> RowRule | None:
        """The question for messages of removed subjects, if the span has any."""
        return self.rule.share(self.spans, span)

    def bounds(self) -> tuple[Array, Array]:
        """Exactly the messages that digests count; up to all in spans not searched for deletions."""
        return self.stored, np.where(self.doubtful, self.spans.messages, self.stored)

    def ordered(self) -> Array:
        """A mask of spans with a possible deletion that removes messages of other files."""
        return self.doubtful


@dataclass(frozen=True)
class OfDeleted(RowRule):
    """The rows of removed subjects."""

    names: pa.Array
    """The subjects, string."""
    rule = DELETE_RETENTION
    columns = ("subject",)

    def takes(self, rows: pa.Table) -> Array:
        """Every row of these subjects."""
        return pc.is_in(rows["subject"], value_set=self.names).to_numpy()


def _last_is(facts: Facts) -> str:
    if facts.last_on_subject in (None, facts.seq):
        return "it is the last message on its subject"
    return f"the last message on its subject is {facts.last_on_subject:,}"


def _deletion(retention_ns: int, facts: Facts) -> str:
    deleted_ns = facts.deleted_ns
    if deleted_ns is None:
        return ", and no deletion"
    age, stored = facts.as_of_ns - deleted_ns, format_instant(deleted_ns)
    line = f", a deletion that is {spell_age(age)} old, stored {stored}"
    if age >= retention_ns:
        return line
    return f"{line}, and is removed with all of its subject at {format_instant(deleted_ns + retention_ns)}"
