"""MaxSubjects: keep the subjects with the highest last sequences, up to the limit; no server has this rule.

The rule runs after the limit per subject. That limit and head trims remove the lowest messages of
a subject, so its last message by digests of the stored files is also the last one after them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.core.wording import counted
from retention.rules import MAX_SUBJECTS
from retention.rules.extra_subjects import ExtraSubjects, extra_subjects
from retention.rules.facts import Facts
from retention.rules.rule import (
    Decision,
    PriorRemovals,
    RowRule,
    Rule,
    SubjectFacts,
    SubjectSource,
)
from retention.rules.setting import Setting


@dataclass(frozen=True)
class MaxSubjects(Rule):
    """At most `limit` subjects are kept: those with the highest last sequences (docs/semantics/limits.md)."""

    name: ClassVar[str] = MAX_SUBJECTS
    setting: ClassVar[Setting] = Setting("max_subjects", "max_subjects", "subjects")
    extra: ExtraSubjects
    subjects: SubjectFacts

    @classmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule of the policy's limit; None if no subject is beyond it."""
        del as_of_ns
        extra = subjects.extra
        return None if policy.max_subjects is None or extra is None else cls(extra, subjects)

    @classmethod
    def find_subjects(
        cls, policy: Policy, as_of_ns: int, source: SubjectSource, subjects: SubjectFacts
    ) -> SubjectFacts:
        """Find the subjects beyond the limit."""
        del as_of_ns
        limit = policy.max_subjects
        return subjects if limit is None else replace(subjects, extra=extra_subjects(limit, source))

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule is on, because a newer message of a subject may be anywhere."""
        return policy.max_subjects is not None

    @classmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether at least `limit` subjects have a newer last message than the message's subject."""
        return policy.max_subjects is not None and facts.newer_subjects >= policy.max_subjects

    @classmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The number of subjects with a newer last message."""
        if policy.max_subjects is None:
            return None
        newer = counted(facts.newer_subjects, "subject has", "subjects have")
        return f"{cls.name} {policy.max_subjects:,}: {newer} a newer last message than its subject"

    @classmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The number of subjects with a newer last message at which the limit removes a subject."""
        del as_of_ns
        limit = policy.max_subjects or 0
        return f" {limit:,}, {limit:,} or more subjects have a newer last message"

    def decide(self, spans: Spans, before: PriorRemovals) -> MaxSubjectsDecision:
        """Count removals by subject digests, in spans without removals of the same messages by other rules."""
        extra = self.extra.messages_in(spans)
        whole = (extra > 0) & (extra == spans.messages) & ~before.gone & ~before.unclear
        shared = (extra > 0) & ~whole & (before.some | self._has_deleted(spans))
        return MaxSubjectsDecision(
            rule=self,
            spans=spans,
            whole=whole,
            sure=whole,
            rows=np.zeros(len(spans), dtype=bool),
            counted=np.where(shared, 0, extra),
            unclear=shared,
            extra=extra,
        )

    def _has_deleted(self, spans: Spans) -> Array:
        """A mask of spans in which a later rule may remove the same subjects."""
        mask = np.zeros(len(spans), dtype=bool)
        if self.subjects.deleted is not None:
            mask[spans.span_of_file[self.subjects.deleted.file]] = True
        return mask


@dataclass(frozen=True, kw_only=True)
class MaxSubjectsDecision(Decision):
    """The decision of digests about extra subjects."""

    extra: Array
    """Messages of extra subjects in each span; int64."""
    rule: MaxSubjects

    def question(self, span: int) -> RowRule | None:
        """The question for messages of extra subjects, if the span has any."""
        if not self.extra[span]:
            return None
        extra = self.rule.extra
        return OfExtraSubjects(extra.kept_in(self.spans, span), extra.lowest)

    def bounds(self) -> tuple[Array, Array]:
        """Exactly the messages that digests count."""
        return self.extra, self.extra


@dataclass(frozen=True)
class OfExtraSubjects(RowRule):
    """The rows of all subjects of a span except the kept ones."""

    kept: pa.Array
    """The kept subjects, string."""
    below: int
    """The sequence from which every message is on a kept subject."""
    rule = MAX_SUBJECTS
    columns = ("subject",)

    def takes(self, rows: pa.Table) -> Array:
        """Every row of another subject."""
        is_kept = pc.is_in(rows["subject"], value_set=self.kept).to_numpy()
        return ~is_kept & (rows["seq"].to_numpy() < self.below)
