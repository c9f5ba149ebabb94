"""DeleteRetention: a subject whose last message is an old deletion goes whole; no server has this rule.

It stands behind the limits and before expiry. Head trims and the limit per subject take the lowest messages of a
subject, so that its last one, by digests of the stored files, is the last one that they leave. Expiry may take a
deletion and leave what lies below it, and write a marker in its place: neither helps anybody once a subject is to go.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    TimedRule,
    delayed,
)


@dataclass(frozen=True)
class DeleteRetention(TimedRule):
    """A subject goes if its last message is a deletion with `ts_ns <= cutoff_ns` (KV PurgeDeletes has that edge)."""

    name: ClassVar[str] = DELETE_RETENTION
    retention_ns: int
    cutoff_ns: int
    """`as_of - delete_retention`: the youngest instant of a deletion that goes, nanoseconds since the epoch."""
    subjects: SubjectFacts

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule at the instant; None where deletions stay like other messages."""
        retention_ns = policy.delete_retention_ns
        return (
            None if retention_ns is None else cls(retention_ns, as_of_ns - retention_ns, subjects)
        )

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule acts, for a newer message of a subject may lie anywhere."""
        return policy.delete_retention_ns is not None

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the last message on the subject is a deletion, and old enough."""
        if policy.delete_retention_ns is None or facts.deleted_ns is None:
            return False
        return facts.as_of_ns - facts.deleted_ns >= policy.delete_retention_ns

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The last message on the subject: whether it is a deletion, and how old."""
        if policy.delete_retention_ns is None:
            return None
        named = f"{cls.name} {format_duration(policy.delete_retention_ns)}"
        return f"{named}: {_last_is(facts)}{_deletion(policy.delete_retention_ns, facts)}"

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The least age of the deletions, each the last message on its subject."""
        del as_of_ns
        kept = format_duration(policy.delete_retention_ns or 0)
        return f" {kept}, the last on the subject is a deletion that old"

    def decide(self, spans: Spans, before: PriorRemovals) -> Decided:
        """Count by digests what goes; only rows tell it where nobody has looked for deletions that may be old enough.

        What such a file holds decides about messages with lower sequences, wherever they lie.
        """
        unseen = np.flatnonzero(self._unseen(spans) <= self.cutoff_ns)
        doubtful = np.arange(len(spans)) < (unseen[-1] + 1 if len(unseen) else 0)
        stored, counted = self._counted(spans)
        whole = (counted > 0) & (counted == _behind_limit(spans, self.subjects))
        whole &= ~before.gone & ~before.unclear & ~doubtful
        return Decided(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole,
            rows=doubtful & ~before.gone,
            counted=counted,
            unclear=doubtful,
            deletion=self,
            stored=stored,
            doubtful=doubtful,
        )

    def share(self, spans: Spans, span: int) -> OfDeleted | None:
        """The rule for the rows of one span; None: it holds nothing of a subject that is known to go."""
        deleted = self.subjects.deleted
        names = None if deleted is None else deleted.names_in(spans, span, self.cutoff_ns)
        return OfDeleted(names) if names is not None and len(names) else None

    def first_due(self, spans: Spans) -> Array:
        """The instant at which the first known deletion is old enough, or a message that may be one."""
        deleted, unseen = self.subjects.deleted, self._unseen(spans)
        known = unseen if deleted is None else deleted.deleted_in(spans)
        return delayed(np.minimum(known, unseen), self.retention_ns)

    def segment_due(self, segments: Spans, *, alone: bool) -> Array:
        """The instant at which anything goes, for a deletion takes messages of any segment along."""
        del alone
        return np.full(len(segments), self.first_due(segments).min(initial=np.iinfo(np.int64).max))

    def _unseen(self, spans: Spans) -> Array:
        """For each span: the oldest time at which a deletion may lie in it that nobody has looked for."""
        deleted = self.subjects.deleted
        return spans.min_ts_ns if deleted is None else deleted.unseen_in(spans)

    def _counted(self, spans: Spans) -> tuple[Array, Array]:
        """Messages of each span on subjects that are known to go: all, and those that a limit per subject leaves."""
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
    """The messages of each span that the limit per subject leaves."""
    return spans.messages - (0 if subjects.excess is None else subjects.excess.messages)


@dataclass(frozen=True, kw_only=True)
class Decided(Decision):
    """The decision of digests about deleted subjects."""

    deletion: DeleteRetention
    stored: Array
    """Messages of each span on subjects that are known to go; int64."""
    doubtful: Array

    def question(self, span: int) -> RowRule | None:
        """The question for messages of subjects that go, where some are."""
        return self.deletion.share(self.spans, span)

    def bounds(self) -> tuple[Array, Array]:
        """Exactly the messages that digests count; up to all where nobody has looked for deletions."""
        return self.stored, np.where(self.doubtful, self.spans.messages, self.stored)

    def ordered(self) -> Array:
        """Spans in which a deletion may lie that takes messages of other files along; a mask."""
        return self.doubtful


@dataclass(frozen=True)
class OfDeleted:
    """The rows of subjects that go."""

    names: pa.Array
    """The subjects, string."""
    rule: ClassVar[str] = DELETE_RETENTION
    expires: ClassVar[bool] = False
    columns: ClassVar[tuple[str, ...]] = ("subject",)

    def takes(self, rows: pa.Table) -> Array:
        """Every row of these subjects."""
        return pc.is_in(rows["subject"], value_set=self.names).to_numpy()

    def stops(self, rows: pa.Table) -> None:
        """None: the rule does not scan."""


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
    return (
        f"{line}, and goes with all of its subject at {format_instant(deleted_ns + retention_ns)}"
    )
