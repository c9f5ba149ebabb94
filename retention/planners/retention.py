"""Planning a stream: look at what exists, decide what metadata can, probe the rest; nothing is written but caches."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from retention.context.context import OpenedStream
from retention.context.stream_tail import next_seq
from retention.core.inventory import Inventory, ReadCount
from retention.core.policy import Policy
from retention.core.spans import spans_of
from retention.engines.select import Engines
from retention.interest.interest import audience_of
from retention.plan.build import make_plan
from retention.plan.consumer_snapshot import Audience
from retention.plan.forecast import forecast, remembered
from retention.plan.plan import Plan, SegmentCounts, empty_plan
from retention.plan.remaining import Left, untouched
from retention.planners.consumer_protection import HeldBack, hold_back, hold_of, missing_of
from retention.planners.delete_markers import Announced, Announcer, without_markers
from retention.planners.interest import left_by_consumers
from retention.planners.probe import Rows
from retention.planners.subject_shuffle import beyond_limit
from retention.planners.topic_cached import plan_topic
from retention.ports import Later, Mark, Outlook, Snapshot
from retention.rules.jetstream.evaluate import OnePass, one_pass
from retention.rules.jetstream.next_due import next_due
from retention.rules.jetstream.prefix_scan import before, ends_before
from retention.rules.jetstream.split_spans import by_file
from retention.rules.jetstream.whole_segments import unread
from retention.rules.row_verdicts import Answer, answer
from retention.stores.sidecar import next_due as due
from schemas.messages import NEVER

_NOTHING = Later()
_NOBODY = Audience()
_FIRST_FILES = 2_000
_GROWTH = 8


@dataclass(frozen=True)
class Look:
    """Everything that a plan was made from."""

    left: Left
    """The stream, and what its consumers leave of it."""
    decided: OnePass
    """The pass over what is left."""
    answers: list[Answer]
    plan: Plan
    snapshot: Snapshot | None = None
    """None: a plan from a head, for which the table was not opened."""
    later: Later = _NOTHING
    """What the inventory does not have."""
    refused: frozenset[int] = frozenset()
    """Sequences of the messages that stay because no delete marker could be stored for them."""
    audience: Audience = _NOBODY
    """The consumers that were asked; none where the policy does not look at them."""
    held: HeldBack | None = None
    """What is held back from limits, or with `warn` would be; None: the policy holds nothing."""

    @property
    def inventory(self) -> Inventory:
        """The stream as it is stored."""
        return self.left.inventory


@dataclass(frozen=True)
class Planned:
    """A plan, and what carrying it out at once goes on with."""

    plan: Plan
    next_seq: Mapping[int, int]
    """Partition → the next sequence to assign."""
    snapshot: Snapshot | None
    """What was opened; None if there was no need to."""


def plan_stream(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """Plan one pass.

    Raises:
        RefusedError: the stream's configuration or its table needs what this version cannot do.
        DamagedError: a file that had to be read is damaged.
    """
    return plan_pass(opened, as_of_ns, engines).plan


def plan_pass(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Planned:
    """Plan one pass; a state of which is remembered that nothing is due yet is not opened.

    Raises:
        RefusedError, DamagedError: as `plan_stream`.
    """
    policy = opened.config.policy()
    nothing = empty_plan(opened.name, as_of_ns, policy)
    if not opened.store.exists():
        return Planned(nothing, {}, None)
    if policy.topic is not None:
        return Planned(*plan_topic(opened, policy.topic, as_of_ns))
    if policy.asks_consumers:
        # What consumers settle leaves no mark on the table.
        found = look(opened, as_of_ns, engines, every_row=False)
        found = found if policy.rests_on_consumers else _foretold(found)
        return Planned(found.plan, found.inventory.counters.next_seq, found.snapshot)
    mark = opened.store.mark()
    quiet = None if mark is None else due.recall(opened.root, mark, policy)
    if mark is not None and quiet is not None and as_of_ns < quiet.due_ns:
        kept = SegmentCounts(kept=quiet.segments)
        told = remembered(as_of_ns, quiet.due_ns, quiet.foretold)
        plan = replace(
            nothing,
            table_id=quiet.table_id,
            version=mark.version,
            segments=kept,
            forecast=told,
            epoch=quiet.epoch,
        )
        return Planned(plan, quiet.next_seq, None)
    outlook = None if mark is None else opened.store.outlook(mark)
    seen = None if outlook is None else look_ahead(opened, outlook, as_of_ns, engines)
    if seen is None:
        seen = look(opened, as_of_ns, engines, every_row=False)
        if mark is not None and seen.snapshot is not None and mark.tells(seen.snapshot):
            opened.store.keep(seen.inventory, mark)
    seen = _foretold(seen)
    if mark is not None:
        _remember(opened, mark, seen)
    return Planned(seen.plan, seen.inventory.counters.next_seq, seen.snapshot)


def _foretold(seen: Look) -> Look:
    """The same with what is due when."""
    plan = seen.plan
    told = forecast(seen.inventory, plan.policy, plan.as_of_ns, seen.decided, seen.later)
    return replace(seen, plan=replace(plan, forecast=told))


def _remember(opened: OpenedStream, mark: Mark, seen: Look) -> None:
    """Keep the next due instant, if metadata alone found that nothing goes and tells until when."""
    plan, counters = seen.plan, seen.inventory.counters
    if mark.version != plan.version or not plan.is_empty or plan.read != ReadCount():
        return
    if seen.snapshot is not None and not (seen.snapshot.follows and mark.tells(seen.snapshot)):
        return
    instant = next_due(seen.decided, plan.policy, counters.open_base)
    if seen.later.segments and instant == NEVER and plan.policy.max_age_ns is not None:
        # In what lies behind the head, something may be due all the same.
        return
    if instant is not None and plan.as_of_ns < instant:
        foretold = tuple(plan.forecast.as_json()["due"])
        next_seq = dict(counters.next_seq)
        quiet = due.Quiet(
            plan.table_id,
            instant,
            plan.segments.kept,
            next_seq,
            foretold,
            epoch=counters.epoch,
        )
        due.keep(opened.root, mark, plan.policy, quiet)


def look(opened: OpenedStream, as_of_ns: int, engines: Engines, *, every_row: bool = True) -> Look:
    """Plan one pass over a stream that exists, and keep what the plan was made from.

    Args:
        opened: the stream.
        as_of_ns: the pass's one instant.
        engines: where rows are read.
        every_row: also read rows that change nothing because their segment stays whole: explaining needs them.

    Raises:
        RefusedError, DamagedError: as `plan_stream`.
    """
    policy = opened.config.policy()
    snapshot = opened.store.snapshot()
    inventory = opened.store.inventory(snapshot)
    # Read behind the snapshot, on whose counter of edits the commit rests.
    audience = audience_of(opened, inventory, as_of_ns)
    left = left_by_consumers(opened, inventory, policy, audience.interests, engines)
    rows = Rows(opened, left, engines)
    decided = decide(opened, left, policy, as_of_ns, engines)
    held = _held(rows, decided, policy, audience, as_of_ns)
    seen = _look_at(rows, decided, as_of_ns, every_row=every_row, held=held)
    plan = _with_consumers(seen.plan, audience, held)
    return replace(seen, plan=plan, snapshot=snapshot, audience=audience, held=held)


def _held(
    rows: Rows, decided: OnePass, policy: Policy, audience: Audience, as_of_ns: int
) -> HeldBack | None:
    """What is held back from limits; None: the policy holds nothing."""
    if policy.hold is None:
        return None
    hold = hold_of(policy.hold, audience, as_of_ns)
    return hold_back(rows, decided, hold, policy.hold.max_bytes)


def _with_consumers(plan: Plan, audience: Audience, held: HeldBack | None) -> Plan:
    """A plan with what it owes to consumers."""
    rule = plan.policy.hold
    if rule is not None and held is not None:
        plan = replace(plan, held=held.told(rule, missing_of(rule, audience)))
    if not plan.policy.rests_on_consumers:
        return plan
    return replace(plan, consumers=audience.pins, expired=audience.expired)


def look_ahead(
    opened: OpenedStream, outlook: Outlook, as_of_ns: int, engines: Engines
) -> Look | None:
    """Plan one pass from the oldest segments alone, as many of them as it takes; None: they are lost.

    Raises:
        RefusedError, DamagedError: as `plan_stream`.
    """
    policy = opened.config.policy()
    reaches_all = policy.max_msgs_per_subject is not None or policy.allow_msg_ttl
    files = sys.maxsize if reaches_all else _FIRST_FILES
    while (head := outlook.head(files)) is not None:
        inventory, later = head.inventory, head.later
        seen_from_head = before(policy, later.messages, later.bytes)
        if seen_from_head is not None:
            left = untouched(inventory)
            decided = decide(opened, left, seen_from_head, as_of_ns, engines)
            if not later.segments or ends_before(decided):
                rows = Rows(opened, left, engines)
                seen = _look_at(rows, decided, as_of_ns, every_row=False)
                segments = seen.plan.segments
                segments = replace(segments, kept=segments.kept + later.segments)
                return replace(seen, plan=replace(seen.plan, segments=segments), later=later)
        files *= _GROWTH
    return None


def decide(
    opened: OpenedStream, left: Left, policy: Policy, as_of_ns: int, engines: Engines
) -> OnePass:
    """Decide a pass as far as metadata goes; subject digests are read only if the policy limits subjects."""
    spans = spans_of(left.files)
    limit = policy.max_msgs_per_subject
    beyond = None if limit is None else beyond_limit(opened, left, spans, limit, engines)
    decided = one_pass(spans, policy, as_of_ns, beyond)
    return by_file(decided, left.files, policy, as_of_ns)


def _look_at(
    rows: Rows,
    decided: OnePass,
    as_of_ns: int,
    *,
    every_row: bool,
    held: HeldBack | None = None,
) -> Look:
    """Have rows answer what metadata left open, and put the plan together."""
    left = rows.left
    policy = rows.opened.config.policy()
    if held is not None and policy.rests_on_consumers:
        decided, answers = held.decided, held.answers
    else:
        answers = _answered(rows, decided, unread_stay=policy.whole_segments and not every_row)
    told = _announced(rows, policy, as_of_ns, decided, answers)
    plan = make_plan(left, policy, as_of_ns, told.decided, told.answers)
    read = plan.read + told.read + _read_for(held, answers)
    plan = replace(plan, markers=told.markers, sequences=told.sequences, read=read)
    return Look(left, told.decided, list(told.answers), plan, refused=told.refused)


def _answered(rows: Rows, decided: OnePass, *, unread_stay: bool) -> list[Answer]:
    """What rows say to the questions of a pass.

    Args:
        rows: where they are read.
        decided: the pass.
        unread_stay: whether rows that change nothing because their segment stays whole are left alone.
    """
    known = unread(decided) if unread_stay else []
    asked = np.setdiff1d(np.flatnonzero(decided.ask), [answer.span for answer in known])
    return known + rows(answer, decided.spans, [decided.question(int(span)) for span in asked])


def _read_for(held: HeldBack | None, answers: list[Answer]) -> ReadCount:
    """What it cost to learn what is held, beside the answers of which the plan is made."""
    if held is None:
        return ReadCount()
    beside = [] if held.answers is answers else held.answers
    return sum((one.read for one in beside), held.read)


def _announced(
    rows: Rows, policy: Policy, as_of_ns: int, decided: OnePass, answers: list[Answer]
) -> Announced:
    if policy.subject_delete_marker_ttl_ns is None:
        return without_markers(decided, answers)
    opened, left = rows.opened, rows.left
    announcer = Announcer(
        policy,
        as_of_ns,
        next_seq(opened, left.inventory),
        lambda: left.subject_counts(opened.store),
        rows,
    )
    return announcer.announce(decided, answers)
