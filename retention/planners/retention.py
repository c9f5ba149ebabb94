"""Planning a stream: look at what exists, decide what metadata can, probe the rest; nothing is written but caches."""

from __future__ import annotations

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
from retention.plan.plan import Plan
from retention.plan.remaining import Left
from retention.planners.consumer_protection import HeldBack, hold_back, hold_of, missing_of
from retention.planners.delete_markers import Announced, Announcer, without_markers
from retention.planners.interest import left_by_consumers
from retention.planners.probe import Rows
from retention.planners.subject_shuffle import beyond_limit
from retention.ports import Later, Snapshot
from retention.rules.jetstream.evaluate import OnePass, one_pass
from retention.rules.jetstream.split_spans import by_file
from retention.rules.jetstream.whole_segments import unread
from retention.rules.row_verdicts import Answer, answer

_NOTHING = Later()
_NOBODY = Audience()


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
    seen = look_at(rows, decided, as_of_ns, every_row=every_row, held=held)
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


def decide(
    opened: OpenedStream, left: Left, policy: Policy, as_of_ns: int, engines: Engines
) -> OnePass:
    """Decide a pass as far as metadata goes; subject digests are read only if the policy limits subjects."""
    spans = spans_of(left.files)
    limit = policy.max_msgs_per_subject
    beyond = None if limit is None else beyond_limit(opened, left, spans, limit, engines)
    decided = one_pass(spans, policy, as_of_ns, beyond)
    return by_file(decided, left.files, policy, as_of_ns)


def look_at(
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
