"""Planning of one pass over a stream: a function of its context, and of the rows that it queries."""

from __future__ import annotations

from dataclasses import dataclass, replace

from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.core.prefix import TailTotals
from retention.core.read_count import ReadCount
from retention.core.spans import spans_of
from retention.plan.build import make_plan, under_holds
from retention.plan.consumer_snapshot import ConsumerSnapshot
from retention.plan.overdue_count import overdue_of
from retention.plan.plan import Plan
from retention.plan.remaining import RemainingMessages, all_remaining
from retention.planners.consumer_protection import (
    ProtectionOutcome,
    missing_consumers,
    protect,
    protection_of,
)
from retention.planners.context import NO_CONSUMERS, PlanningContext
from retention.planners.delete_markers import MarkedPass, MarkerPlanner, without_markers
from retention.planners.interest import remaining_of
from retention.planners.remaining_subjects import RemainingSubjects
from retention.planners.rows import StreamRows
from retention.planners.veto import veto
from retention.rules.fold import Evaluation, Vetoed
from retention.rules.jetstream.evaluate import evaluate, find_subjects
from retention.rules.jetstream.prefix_scan import ends_in_prefix, prefix_policy
from retention.rules.jetstream.split_spans import split_by_file
from retention.rules.jetstream.whole_segments import unread_answers
from retention.rules.veto import Veto

_NO_TAIL = TailTotals()


@dataclass(frozen=True)
class Planning:
    """A plan, and its inputs."""

    remaining: RemainingMessages
    """The stream, and its messages not released by consumers."""
    decided: Evaluation
    """The pass over the remaining messages."""
    plan: Plan
    tail: TailTotals = _NO_TAIL
    """Totals of the stream after the inventory."""
    refused: frozenset[int] = frozenset()
    """Sequences of messages kept because no delete marker could be stored for them."""
    consumers: ConsumerSnapshot = NO_CONSUMERS
    """The consumers that were read; empty if the policy does not use them."""
    protection: ProtectionOutcome | None = None
    """Messages protected from limits, or with `warn` only counted; None: the policy protects nothing."""

    @property
    def inventory(self) -> Inventory:
        """The stream as it is stored."""
        return self.remaining.inventory


def plan(context: PlanningContext, rows: StreamRows) -> Planning:
    """Plan one pass over a whole stream.

    Args:
        context: the stream and its policy.
        rows: the only source of answers that statistics cannot give.

    Raises:
        DamagedError: a file that had to be read is damaged.
    """
    remaining = remaining_of(context, rows)
    decided = decide(remaining, context.policy, context.as_of_ns, rows)
    protection = _protected(context, remaining, decided, rows)
    planning = _conclude(context, remaining, decided, rows, protection)
    with_consumers = _with_consumers(planning.plan, context.consumers, protection)
    return replace(
        planning, plan=with_consumers, consumers=context.consumers, protection=protection
    )


def plan_prefix(context: PlanningContext, tail: TailTotals, rows: StreamRows) -> Planning | None:
    """Plan one pass over a whole stream from its oldest segments alone; None: the pass extends beyond them.

    Args:
        context: the oldest segments as an inventory; the policy does not use consumers.
        tail: totals of the segments after them.
        rows: as for `plan`.

    Raises:
        DamagedError: a file that had to be read is damaged.
    """
    policy = prefix_policy(context.policy, tail.messages, tail.bytes)
    if policy is None:
        return None
    remaining = all_remaining(context.inventory)
    decided = decide(remaining, policy, context.as_of_ns, rows)
    if tail.segments and not ends_in_prefix(decided):
        return None
    planning = _conclude(context, remaining, decided, rows)
    segments = planning.plan.header.segments
    segments = replace(segments, kept=segments.kept + tail.segments)
    cause = replace(planning.plan.cause, tail=tail)
    header = replace(planning.plan.header, segments=segments)
    overdue = planning.plan.overdue
    if tail.segments and overdue is not None:
        overdue = overdue.at_least()
    made = replace(planning.plan, header=header, cause=cause, overdue=overdue)
    return replace(planning, plan=made, tail=tail)


def decide(
    remaining: RemainingMessages, policy: Policy, as_of_ns: int, rows: StreamRows
) -> Evaluation:
    """Decide a pass from metadata as far as possible; subject digests are read only for rules about subjects."""
    spans = spans_of(remaining.files)
    subjects = find_subjects(policy, as_of_ns, RemainingSubjects(remaining, spans, rows))
    decided = evaluate(spans, policy, as_of_ns, subjects)
    return split_by_file(decided, remaining.files, policy, as_of_ns)


def _protected(
    context: PlanningContext, remaining: RemainingMessages, decided: Evaluation, rows: StreamRows
) -> ProtectionOutcome | None:
    """Find the messages that consumers protect from limits; None: the policy protects nothing."""
    rule = context.policy.hold
    if rule is None:
        return None
    hold = protection_of(rule, context.consumers, context.as_of_ns)
    return protect(rows.of(remaining), decided, hold, rule.max_bytes)


def _with_consumers(
    plan: Plan, consumers: ConsumerSnapshot, protection: ProtectionOutcome | None
) -> Plan:
    """Add to a plan its consumers, the pins on their state, and the messages held for them."""
    hold = None if protection is None else protection.hold
    plan = replace(plan, cause=replace(plan.cause, consumers=consumers, protection=hold))
    rule = plan.header.policy.hold
    if rule is not None and protection is not None:
        plan = replace(plan, held=protection.as_messages(rule, missing_consumers(rule, consumers)))
    if not plan.header.policy.rests_on_consumers:
        return plan
    pins = replace(plan.pins, consumers=consumers.pins, expired=consumers.expired)
    return replace(plan, pins=pins)


def _conclude(
    context: PlanningContext,
    remaining: RemainingMessages,
    decided: Evaluation,
    rows: StreamRows,
    protection: ProtectionOutcome | None = None,
) -> Planning:
    """Answer the open questions from rows, and build the plan."""
    policy = context.policy
    vetoed = _vetoed(context, remaining, decided, rows, protection)
    announced = _announced(context, remaining, rows, vetoed)
    made = make_plan(remaining, policy, context.as_of_ns, announced.vetoed)
    read = made.header.read + announced.read + _read_for(protection, vetoed) + _read_before(decided)
    made = replace(
        made,
        header=replace(made.header, read=read),
        effects=replace(made.actions, markers=announced.markers, sequences=announced.sequences),
        cause=replace(made.cause, refused=announced.refused),
    )
    made = under_holds(made, context.holds, announced.vetoed, remaining.kept)
    if announced.vetoed is vetoed:
        # If markers evict messages or are refused, the scan ends elsewhere.
        overdue = overdue_of(
            remaining.files, policy, context.as_of_ns, vetoed.decided, vetoed.answers
        )
        made = replace(made, overdue=overdue)
    return Planning(remaining, announced.vetoed.decided, made, refused=announced.refused)


def _vetoed(
    context: PlanningContext,
    remaining: RemainingMessages,
    decided: Evaluation,
    rows: StreamRows,
    protection: ProtectionOutcome | None,
) -> Vetoed:
    """The pass under all vetoes; with `whole_segments`, only rows that can decide about a segment are read."""
    vetoes: tuple[Veto, ...] = context.all_vetoes
    if protection is not None and context.policy.rests_on_consumers:
        if not vetoes:
            return protection.vetoed
        vetoes = (*vetoes, protection.hold)
    decided = _with_rows_beside_kept(decided, remaining)
    known = unread_answers(decided) if context.policy.whole_segments else []
    return veto(decided, vetoes, rows.of(remaining), known)


def _with_rows_beside_kept(decided: Evaluation, remaining: RemainingMessages) -> Evaluation:
    """Read the rows of spans with messages kept from the release, because not all of their files can be removed."""
    if remaining.kept is None:
        return decided
    beside = remaining.kept.messages[remaining.numbers] > 0
    ask = decided.ask.copy()
    ask[decided.spans.span_of_file[beside]] = True
    return replace(decided, ask=ask)


def _read_for(protection: ProtectionOutcome | None, vetoed: Vetoed) -> ReadCount:
    """The reads to find protected messages, in addition to those of the plan's answers."""
    if protection is None:
        return ReadCount()
    beside = () if protection.vetoed is vetoed else protection.vetoed.answers
    return sum((answer.read for answer in beside), protection.read)


def _read_before(decided: Evaluation) -> ReadCount:
    """The reads to search for deletions before the decision."""
    deleted = decided.subjects.deleted
    return ReadCount() if deleted is None else deleted.read


def _announced(
    context: PlanningContext,
    remaining: RemainingMessages,
    rows: StreamRows,
    vetoed: Vetoed,
) -> MarkedPass:
    """The pass with its delete markers."""
    if context.policy.subject_delete_marker_ttl_ns is None:
        return without_markers(vetoed)
    announcer = MarkerPlanner(
        context.policy,
        context.as_of_ns,
        context.next_seq,
        lambda: remaining.subject_counts(rows),
        rows.of(remaining),
    )
    return announcer.announce(vetoed)
