"""The interface of a retention rule, for passes, estimates, forecasts and explanations.

A rule is one module with three parts: a `Rule` (of a policy at one instant), its `Decision` on the
spans of a stream, and its `RowRule` for the rows of a span. `rules.fold` folds any list of rules,
and knows none by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.rules.deleted_subjects import DeletedSubjects
from retention.rules.extra_subjects import ExtraSubjects
from retention.rules.facts import Facts
from retention.rules.setting import Setting
from retention.schemas.deadlines import NEVER


class RowRule(ABC):
    """A rule's question to the rows of one span; picklable."""

    rule: str
    """The rule's name."""
    expires: bool = False
    """Whether the rule removes messages for their age: `SpanRule.expires`."""

    @property
    def columns(self) -> Sequence[str]:
        """The columns that the rule reads in addition to `seq` and `size`."""
        return ()

    @abstractmethod
    def takes(self, rows: pa.Table) -> Array:
        """A mask of the rows that the rule removes, unless a rule before it does or its scan ends before them.

        Args:
            rows: its columns, of all files of the span, ascending by `seq`.
        """

    def stops(self, rows: pa.Table) -> Array | None:
        """A mask of the rows that end the rule's scan, unless a rule before it removes them; None: it does not scan."""
        del rows
        return None


class SubjectExcess(Protocol):
    """The messages of each span beyond a limit per subject, in memory or stored."""

    @property
    def messages(self) -> Array:
        """The number of these messages in each span, int64."""
        ...

    @property
    def subjects(self) -> int:
        """The number of all subjects."""
        ...

    def of_span(self, span: int) -> RowRule:
        """The row rule that removes these messages from one span."""
        ...


@dataclass(frozen=True)
class SubjectFacts:
    """Facts about subjects in the whole stream that a policy's rules use."""

    excess: SubjectExcess | None = None
    """The messages beyond the policy's limit per subject; None: there is no such limit."""
    deleted: DeletedSubjects | None = None
    """The subjects with a deletion as their last message; None: not searched."""
    extra: ExtraSubjects | None = None
    """The subjects beyond the policy's limit of subjects; None: no subject is beyond it."""


NO_FACTS = SubjectFacts()


class SubjectSource(Protocol):
    """A source of facts about subjects in the remaining messages of a stream.

    Each method raises `DamagedError` if a file that it must read is damaged.
    """

    @property
    def files(self) -> pa.Table:
        """The files with remaining messages, shape `FILE_STATS`, in the order of the stream."""
        ...

    def digests(self, first: int, end: int) -> pa.Table:
        """The digests of the files from row `first` to before `end`, shape `SUBJECT_COUNTS_OF_FILES`.

        `file` is a row number among all files.
        """
        ...

    def excess(self, limit: int) -> SubjectExcess:
        """The messages of each span beyond a limit per subject."""
        ...

    def deleted(self, until_ns: int, limit: int | None) -> DeletedSubjects | None:
        """The subjects with a deletion as their last message; None: no message was stored by `until_ns`.

        Args:
            until_ns: files without a message of that time or before are not searched, nanoseconds since the epoch.
            limit: the maximum number of messages per subject; None: unlimited.
        """
        ...


@dataclass(frozen=True)
class PriorRemovals:
    """Removals by the rules before a rule; masks have one entry per span."""

    gone: Array
    """Spans completely removed by these rules, with the count of each rule known from statistics."""
    some: Array
    """Spans partly removed by them, so that the span's statistics cover more than the remaining messages."""
    unclear: Array
    """The subset of `some` that needs rows for the count of each rule."""


@dataclass(frozen=True)
class Scan:
    """The extent of a rule that scans from the lowest sequence and stops at a message."""

    reach: int
    """The first span that the rule certainly does not reach; it reaches no later one either."""
    may_stop: Array
    """A mask of spans with a message that stops the rule."""
    stops: Array
    """A mask of spans in which every message stops the rule."""


@dataclass(frozen=True, kw_only=True)
class Decision(ABC):
    """The decision of one rule from statistics; masks have one entry per span."""

    rule: SpanRule
    spans: Spans
    whole: Array
    """Spans in which the rule removes all remaining messages; for a scanning rule, if the scan reaches the span."""
    sure: Array
    """The subset of `whole` that is removed for any content of rows."""
    rows: Array
    """Spans that need their rows."""
    counted: Array
    """The number of messages removed from a partly removed span, if known from statistics; int64."""
    unclear: Array
    """Spans in which statistics do not give the number of these messages that a later rule would also remove."""
    scan: Scan | None = None
    """None: the rule does not scan."""
    doubtful: Array | None = None
    """A mask of spans for which the rule needs more of the stream than an estimate reads; None: none."""

    @abstractmethod
    def question(self, span: int) -> RowRule | None:
        """The rule's question to the rows of any span; None: it removes none of them."""

    @abstractmethod
    def bounds(self) -> tuple[Array, Array]:
        """Bounds of the messages that the rule removes from each span if earlier rules remove none; int64."""

    def ordered(self) -> Array:
        """A mask of spans in which the rule depends on the order of rows across files."""
        return np.zeros(len(self.spans), dtype=bool)

    def ends_within(self) -> bool:
        """Whether the rule certainly removes nothing after the spans."""
        return False

    def takes_whole(self, stopped_at: int | None) -> Array:
        """`whole`, given the span in which rows end the scan (None: no span)."""
        if self.scan is None or stopped_at is None:
            return self.whole
        return self.whole & (np.arange(len(self.spans)) < stopped_at)

    def takes_any(self) -> bool:
        """Whether the rule may remove any message."""
        return bool(self.whole.any() or self.rows.any() or self.counted.any() or self.unclear.any())


class SpanRule(ABC):
    """A rule that removes messages of spans: of a policy, a request, a roll-up or a topic."""

    expires: ClassVar[bool] = False
    """Whether it removes messages for their age, so that a delete marker replaces a subject's last message."""
    trims: ClassVar[bool] = False
    """Whether it applies after every stored message, so that delete markers make it remove more."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The rule's name."""

    @abstractmethod
    def decide(self, spans: Spans, before: PriorRemovals) -> Decision:
        """Decide from statistics as far as possible, after other rules."""


class Rule(SpanRule):
    """A rule of a policy at one instant."""

    name: ClassVar[str]
    setting: ClassVar[Setting]
    narrow: ClassVar[bool] = False
    """Whether it compares nothing of a message but its sequence and size."""

    @classmethod
    @abstractmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule at the instant `as_of_ns`; None: it removes nothing under the policy.

        Args:
            policy: the stream's.
            as_of_ns: the pass's one instant, nanoseconds since the epoch.
            subjects: the known facts about subjects that the policy's rules use.
        """

    @classmethod
    def find_subjects(
        cls, policy: Policy, as_of_ns: int, source: SubjectSource, subjects: SubjectFacts
    ) -> SubjectFacts:
        """The facts about subjects found for earlier rules, and those that this rule needs.

        Raises:
            DamagedError: a file that had to be read is damaged.
        """
        del policy, as_of_ns, source
        return subjects

    @classmethod
    @abstractmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the rule removes one message, regardless of other rules; False if the policy does not have it."""

    @classmethod
    @abstractmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The line of an explanation with the compared facts; None: the policy does not have the rule."""

    @classmethod
    @abstractmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The reason for removals by the rule, with its numbers, to follow its name."""

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule can remove messages anywhere in the stream, regardless of the lower sequences."""
        del policy
        return False

    @classmethod
    def ahead_of(cls, policy: Policy, messages: int, total_bytes: int) -> Policy | None:
        """The policy under which the rule removes the same messages from a prefix as from the whole stream.

        Args:
            policy: the whole stream's.
            messages: the number of messages after the prefix.
            total_bytes: the bytes of these messages.

        Returns:
            None: it removes all of the prefix, and some messages after it.
        """
        del messages, total_bytes
        return policy


class TimedRule(Rule):
    """A rule that removes more with time alone."""

    @abstractmethod
    def first_due(self, spans: Spans) -> Array:
        """For each span: a lower bound of the instant of its first removal, if nothing was removed before."""

    @abstractmethod
    def segment_due(self, segments: Spans, *, alone: bool) -> Array:
        """For each segment: a lower bound of the instant at which the rule does its part in removing it.

        Args:
            segments: one entry per segment.
            alone: whether the rule must remove every message; otherwise one is enough.
        """

    def tail_due(self, spans: Spans) -> int:
        """A lower bound of the first removal after these spans, if the rule removes none of their messages."""
        del spans
        return NEVER


class ExpiryRule(TimedRule):
    """A rule that removes messages for their age, announced by delete markers."""

    expires: ClassVar[bool] = True

    @abstractmethod
    def everywhere(self) -> RowRule:
        """The rule's question to rows that it reaches."""

    @abstractmethod
    def most(self, spans: Spans) -> Array:
        """The maximum number of messages that the rule can remove from each span, for any end of the scan; int64."""


def delayed(instants: Array, span_ns: int) -> Array:
    """Instants plus a span; `NEVER` on overflow of 64 bits."""
    return np.where(instants > NEVER - span_ns, NEVER, instants + span_ns)
