"""Explaining why one message stays or goes, by a plan: just made, made before, or read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.subjects import matches
from retention.core.units import format_instant
from retention.engines.select import Engines
from retention.errors import StalePlanError, UsageError
from retention.plan.explanation import Explanation, explanation
from retention.plan.plan import Plan, empty_plan
from retention.planners.explain_pass import explain_behind, explain_message
from retention.planners.explain_topic import (
    explain_segment,
    explain_segment_removal,
    missing_in_topic,
    named_in_topic,
)
from retention.planners.plan_rows import Place, PlannedFileRows, PlanRows, live_message
from retention.planners.table import plan_table
from retention.planners.topic import plan_topic_table
from retention.ports import Snapshot
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.requests import Delete, MessageRequest, Purge
from schemas.messages import NEVER


def explain(
    opened: OpenedStream, seq: int, as_of_ns: int, engines: Engines, partition: int = 0
) -> Explanation:
    """Explain one message, as a pass at `as_of_ns` would treat it: plan that pass, and ask the plan.

    Raises:
        UsageError: no message with that sequence is in the stream.
        RefusedError, DamagedError: as planning.
    """
    return explain_by(opened, _whole_plan(opened, as_of_ns, engines), (partition, seq))


def _whole_plan(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """The plan of a pass that rests on every file, whatever is remembered."""
    policy = opened.config.policy()
    if not opened.store.exists():
        return empty_plan(opened.name, as_of_ns, policy)
    if policy.topic is not None:
        return plan_topic_table(opened, policy.topic, as_of_ns).plan
    return plan_table(opened, as_of_ns, engines).planning.plan


def explain_by(opened: OpenedStream, plan: Plan, place: Place) -> Explanation:
    """Explain one message by a plan, from what the plan was made from alone.

    Args:
        opened: the stream, of which only files are read that the plan knows; a message of which the plan knows no file
            is read from its table.
        plan: what was decided.
        place: partition and sequence of the message.

    Raises:
        UsageError: no such message was in the stream when the plan was made, nor has come since.
        StalePlanError: what the plan was made from is gone.
        DamagedError: a file is damaged.
    """
    rows = PlanRows(plan, PlannedFileRows(opened, plan))
    topic, request = plan.policy.topic, plan.request
    around = rows.find(place)
    if around is None:
        return _elsewhere(opened, plan, place)
    if topic is not None:
        if request is None:
            return explain_segment(plan, topic, around.message)
        if isinstance(request, Purge | DeleteSegments):
            return explain_segment_removal(plan, topic, request, around.message)
    if isinstance(request, Purge | Delete):
        return _explain_requested(plan, request, around.message)
    return explain_message(rows, around)


def _elsewhere(opened: OpenedStream, plan: Plan, place: Place) -> Explanation:
    """Explain a message that lies in no file of the plan."""
    if not opened.store.exists():
        raise _missing(opened, plan, place)
    message, snapshot = live_message(opened, place)
    if message is None:
        if _knows_every_file(plan) or not _has_changed(plan, snapshot):
            raise _missing(opened, plan, place)
        raise StalePlanError(
            f"{plan.stream}: message {place[1]} is not there, or not any more; this plan does not know every file, and "
            "the stream has changed since; plan again"
        )
    if _has_changed(plan, snapshot) and (
        _knows_every_file(plan) or place[1] >= plan.cause.end(place[0])
    ):
        line = "it was stored after this plan was made"
        return explanation(
            plan.stream, message, None, f"{_named(plan, message)} stays: {line}.", (line,)
        )
    return _untouched(plan, message)


def _untouched(plan: Plan, message: dict[str, Any]) -> Explanation:
    """Explain a message that stays because its part of the stream was not looked at."""
    cause = plan.cause
    if cause.next_due_ns == NEVER:
        line = "nothing that the stream held is ever due, unless something is stored"
    elif cause.next_due_ns is not None:
        line = f"nothing that the stream held is due before {format_instant(cause.next_due_ns)}"
    else:
        line = (
            f"it is one of {cause.tail.messages:,} messages behind the oldest segments, and the pass "
            "ends before them"
        )
    if plan.policy.topic is None:
        return explain_behind(plan, message, line)
    return explanation(
        plan.stream, message, None, f"{_named(plan, message)} stays: {line}.", (line,)
    )


def _named(plan: Plan, message: dict[str, Any]) -> str:
    if plan.policy.topic is not None:
        return named_in_topic(plan, message)
    return f"{plan.stream} {message['seq']:,} ({message['subject']})"


def _knows_every_file(plan: Plan) -> bool:
    return plan.cause.next_due_ns is None and not plan.cause.tail.segments


def _has_changed(plan: Plan, snapshot: Snapshot) -> bool:
    """Whether the table is another one than that which the plan was made from."""
    return (plan.table_id, plan.version) != (snapshot.table_id, snapshot.version)


def _missing(opened: OpenedStream, plan: Plan, place: Place) -> UsageError:
    if plan.policy.topic is not None:
        return missing_in_topic(plan, place)
    if not plan.table_id:
        return UsageError(
            f"{opened.name}: the stream holds nothing yet, so there is no message {place[1]}"
        )
    files = plan.cause.files
    held = "none"
    if files.num_rows:
        end = (
            plan.cause.end(0) if plan.cause.tail.segments else pc.max(files["max_seq"]).as_py() + 1
        )
        held = f"{files['min_seq'][0].as_py():,} to {end - 1:,}"
    return UsageError(
        f"{opened.name}: there is no message {place[1]} (sequences held: {held}); it was never stored, or an earlier "
        "run or the broker removed it: `retention history` lists the runs"
    )


def _explain_requested(
    plan: Plan, request: MessageRequest, message: Mapping[str, Any]
) -> Explanation:
    """Explain one message, as a planned removal treats it.

    Args:
        plan: what was planned.
        request: what it carries out.
        message: its narrow columns.
    """
    seq, subject = message["seq"], message["subject"]
    facts = _facts_of_request(plan, request, seq, subject)
    goes = all(holds for holds, _ in facts)
    named = f"{plan.stream} {seq:,} ({subject})"
    why = "; ".join(line for holds, line in facts if not holds)
    return explanation(
        plan.stream,
        message,
        request.rule if goes else None,
        f"{named} goes: {request.wording}."
        if goes
        else f"{named} stays: {request.wording}: {why}.",
        tuple(line for _, line in facts),
    )


def _facts_of_request(
    plan: Plan, request: MessageRequest, seq: int, subject: str
) -> list[tuple[bool, str]]:
    """Facts that the request compares about a message: whether each lets it go, and the words for it."""
    if isinstance(request, Delete):
        named = seq in request.seqs
        return [(named, f"its sequence is {'' if named else 'not '}named")]
    facts = []
    if request.subject is not None:
        fits = matches(request.subject, subject)
        facts.append(
            (fits, f"its subject {'matches' if fits else 'does not match'} {request.subject}")
        )
    if request.seq is not None:
        below = seq < request.seq
        facts.append((below, f"it is {'' if below else 'not '}below sequence {request.seq:,}"))
    if all(fits for fits, _ in facts):
        facts.append(_reach(plan, request, seq))
    return facts


def _reach(plan: Plan, request: Purge, seq: int) -> tuple[bool, str]:
    """Whether a purge reaches a message, and the words: of all that match, it takes the lowest, up to some sequence."""
    ends = [
        pc.max(plan.actions.drop.files["max_seq"]).as_py(),
        pc.max(plan.removed["last_seq"]).as_py(),
    ]
    last = max((end for end in ends if end is not None), default=0)
    if seq <= last:
        return True, f"the purge reaches up to {last:,}"
    return False, f"it is one of the newest {request.keep or 0:,}"
