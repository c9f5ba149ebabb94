"""The protocol of a retention rule: all that a pass, an estimate, a forecast and an explanation ask of it.

A rule is one module: a `Rule`, which a policy has at one instant, the `Decision` that it takes over the spans of a
stream, and the `RowRule` that it hands to the rows of a span. `rules.fold` folds any list of rules, none by name.
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
from retention.rules.facts import Facts
from schemas.messages import NEVER


class RowRule(Protocol):
    """A rule's question to the rows of one span; picklable."""

    @property
    def rule(self) -> str:
        """The rule's name."""
        ...

    @property
    def expires(self) -> bool:
        """Whether the rule takes messages for their age: `Rule.expires`."""
        ...

    @property
    def columns(self) -> Sequence[str]:
        """The columns that the rule looks at beside `seq` and `size`."""
        ...

    def takes(self, rows: pa.Table) -> Array:
        """The rows that the rule takes unless a rule before it does, or its scan ends before them; a mask.

        Args:
            rows: its columns, of all files of the span, ascending by `seq`.
        """
        ...

    def stops(self, rows: pa.Table) -> Array | None:
        """The rows that end the rule's scan if no rule before it takes them; a mask; None: it does not scan."""
        ...


class SubjectExcess(Protocol):
    """The messages of each span beyond a limit per subject, wherever that is kept."""

    @property
    def messages(self) -> Array:
        """The number of such messages of each span, int64."""
        ...

    def of_span(self, span: int) -> RowRule:
        """The row rule that takes these messages of one span."""
        ...


@dataclass(frozen=True)
class SubjectFacts:
    """Facts about subjects throughout a stream, as far as a policy's rules look at them."""

    excess: SubjectExcess | None = None
    """The messages beyond the policy's limit per subject; None: it has none."""
    deleted: DeletedSubjects | None = None
    """The subjects whose last message is a deletion; None: nobody has looked."""


NO_FACTS = SubjectFacts()


@dataclass(frozen=True)
class PriorRemovals:
    """Removals by the rules before one; masks with an entry a span."""

    gone: Array
    """Spans of which these rules take every message, and statistics tell how many each."""
    some: Array
    """Spans of which they take some messages, so that statistics of the span say more than what remains."""
    unclear: Array
    """Of these, spans of which only rows tell how many messages each rule takes."""


@dataclass(frozen=True)
class Scan:
    """The reach of a rule that walks from the lowest sequence and stops at a message."""

    reach: int
    """The first span that the rule never reaches, nor any later one, whatever rows say."""
    may_stop: Array
    """Spans that hold a message at which the rule stops; a mask."""
    stops: Array
    """Spans of which every message stops the rule; a mask."""


@dataclass(frozen=True, kw_only=True)
class Decision(ABC):
    """The part of one rule that statistics decide; masks with an entry a span."""

    rule: Rule
    spans: Spans
    whole: Array
    """Spans of which everything goes that the rules before leave; where the rule scans, if the scan comes there."""
    sure: Array
    """Of these, the spans that go whatever the rows of any span say."""
    rows: Array
    """Spans of which only rows tell what goes."""
    counted: Array
    """The number of messages that go of a span that does not go whole, where statistics tell; int64."""
    unclear: Array
    """Spans of which statistics do not tell how many of these messages a rule behind this one would take, too."""
    scan: Scan | None = None
    """None: the rule does not scan."""
    doubtful: Array | None = None
    """Spans about which the rule would have more of the stream read, as an estimate has not; a mask; None: none."""

    @abstractmethod
    def question(self, span: int) -> RowRule | None:
        """The rule's question to the rows of any span; None: it takes none of them."""

    @abstractmethod
    def bounds(self) -> tuple[Array, Array]:
        """The least and the most messages of each span that the rule can take if those before take none; int64."""

    def ordered(self) -> Array:
        """Spans in which it matters to the rule in which order the rows of several files lie; a mask."""
        return np.zeros(len(self.spans), dtype=bool)

    def ends_within(self) -> bool:
        """Whether the rule surely takes nothing of what lies behind the spans."""
        return False

    def takes_whole(self, stopped_at: int | None) -> Array:
        """`whole`, once it is known in which span rows end the scan; None: in none."""
        if self.scan is None or stopped_at is None:
            return self.whole
        return self.whole & (np.arange(len(self.spans)) < stopped_at)

    def takes_any(self) -> bool:
        """Whether the rule takes, or may take, any message."""
        return bool(self.whole.any() or self.rows.any() or self.counted.any() or self.unclear.any())


class Rule(ABC):
    """A rule as a policy has it at one instant."""

    name: ClassVar[str]
    expires: ClassVar[bool] = False
    """Whether it takes messages for their age, so that a delete marker takes the place of a subject's last one."""
    trims: ClassVar[bool] = False
    """Whether it acts after every message that is stored, so that delete markers make it take more."""

    @classmethod
    @abstractmethod
    def of(cls, policy: Policy, as_of_ns: int, subjects: SubjectFacts) -> Self | None:
        """The rule at the instant `as_of_ns`; None: the policy lets it remove nothing.

        Args:
            policy: the stream's.
            as_of_ns: the pass's one instant, nanoseconds since the epoch.
            subjects: what is known of subjects, as far as the policy's rules look at them.
        """

    @classmethod
    @abstractmethod
    def takes_message(cls, policy: Policy, facts: Facts) -> bool:
        """Whether the rule takes one message, whatever other rules do; False if the policy does not have it."""

    @classmethod
    @abstractmethod
    def line(cls, policy: Policy, facts: Facts) -> str | None:
        """The line of an explanation with the facts that the rule compares; None: the policy does not have the rule."""

    @classmethod
    @abstractmethod
    def reason(cls, policy: Policy, as_of_ns: int) -> str:
        """The reason why messages go by the rule, with its numbers, to follow its name."""

    @classmethod
    def reaches_all(cls, policy: Policy) -> bool:
        """Whether the rule can take messages anywhere in the stream, whatever is left of the lower sequences."""
        del policy
        return False

    @classmethod
    def ahead_of(cls, policy: Policy, messages: int, total_bytes: int) -> Policy | None:
        """The policy by which the rule takes the same of a prefix as of the whole stream.

        Args:
            policy: the whole stream's.
            messages: how many lie behind the prefix.
            total_bytes: how many bytes they have.

        Returns:
            None: it takes all of the prefix, and some of what lies behind it.
        """
        del messages, total_bytes
        return policy

    @abstractmethod
    def decide(self, spans: Spans, before: PriorRemovals) -> Decision:
        """Decide what statistics can, behind other rules."""


class TimedRule(Rule):
    """A rule that time alone makes take more."""

    @abstractmethod
    def first_due(self, spans: Spans) -> Array:
        """For each span: no instant before this one lets any of its messages go, while nothing has gone before."""

    @abstractmethod
    def segment_due(self, segments: Spans, *, alone: bool) -> Array:
        """For each segment: no instant before this one lets the rule play its part in removing it.

        Args:
            segments: one entry a segment.
            alone: whether the rule has to take every message; else one is enough.
        """

    def tail_due(self, spans: Spans) -> int:
        """No instant before this one lets the rule take a message behind these spans, if it takes none of theirs."""
        del spans
        return NEVER


class ExpiryRule(TimedRule):
    """A rule that takes messages for their age, of which delete markers tell."""

    expires: ClassVar[bool] = True

    @abstractmethod
    def everywhere(self) -> RowRule:
        """The rule's question to rows to which it comes."""

    @abstractmethod
    def most(self, spans: Spans) -> Array:
        """The most messages of each span that the rule can take, wherever a scan ends; int64."""


def delayed(instants: Array, span_ns: int) -> Array:
    """Instants so much later; `NEVER` where no 64 bits hold that."""
    return np.where(instants > NEVER - span_ns, NEVER, instants + span_ns)
