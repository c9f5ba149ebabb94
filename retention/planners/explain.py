"""Explanation of one message by a plan: a new one, an earlier one, or one read from a file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.holds import holds_of
from retention.core.labels import on_stream
from retention.core.units import format_instant
from retention.core.wording import counted
from retention.engines.select import Engines
from retention.errors import MissingMessageError, StalePlanError
from retention.plan.explanation import Explanation, explanation
from retention.plan.plan import Plan, empty_plan
from retention.planners.explain_replay import with_fate
from retention.planners.explain_stream import StreamExplainer
from retention.planners.explain_topic import TopicExplainer
from retention.planners.plan_rows import (
    MessageContext,
    MessageRef,
    PlannedFileRows,
    PlanRows,
    live_message,
)
from retention.planners.replayed import plan_replay
from retention.planners.table import plan_table
from retention.planners.topic import plan_topic_table
from retention.ports import Snapshot
from retention.schemas.deadlines import NEVER


class Explainer(Protocol):
    """Explanations by a plan, in the terms of a stream or of a topic."""

    def planned(self, rows: PlanRows, around: MessageContext) -> Explanation:
        """Explain a message in a file of the plan."""
        ...

    def behind(self, message: dict[str, object], line: str) -> Explanation:
        """Explain a message in a file unknown to the plan, kept because of `line`."""
        ...

    def named(self, message: dict[str, object]) -> str:
        """The name of a message in sentences."""
        ...

    def missing(self, ref: MessageRef) -> MissingMessageError:
        """The error for a missing message."""
        ...


@on_stream
def explain(
    opened: OpenedStream, seq: int, as_of_ns: int, engines: Engines, partition: int = 0
) -> Explanation:
    """Explain one message by the plan of a pass at `as_of_ns`.

    Raises:
        MissingMessageError: the stream has no message with that sequence.
        RefusedError, DamagedError: as planning.
    """
    if opened.config.policy().mode == "replay" and opened.table.exists():
        replayed = plan_replay(opened, as_of_ns, engines)
        return with_fate(explain_by(opened, replayed.plan, (partition, seq)), replayed.gone)
    return explain_by(opened, _whole_plan(opened, as_of_ns, engines), (partition, seq))


def _whole_plan(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Plan:
    """The plan of a pass based on every file, without using the cache."""
    policy = opened.config.policy()
    if not opened.table.exists():
        return empty_plan(opened.name, as_of_ns, policy)
    if policy.topic is not None:
        return plan_topic_table(opened, policy.topic, as_of_ns).plan
    return plan_table(opened, as_of_ns, engines).planning.plan


def explain_by(opened: OpenedStream, plan: Plan, ref: MessageRef) -> Explanation:
    """Explain one message by a plan, from the plan's own inputs.

    Args:
        opened: the stream; only files known to the plan are read. A message in an unknown file is
            read from the table.
        plan: the plan.
        ref: partition and sequence of the message.

    Raises:
        MissingMessageError: the message was not in the stream when the plan was made, and was not added since.
        StalePlanError: the files that the plan was made from are deleted.
        DamagedError: a file is damaged.
    """
    rows = PlanRows(plan, PlannedFileRows(opened, plan))
    around = rows.find(ref)
    if around is None:
        return _elsewhere(opened, plan, ref)
    return _with_holds(opened, around.message, _explainer(plan).planned(rows, around))


def _with_holds(
    opened: OpenedStream, message: dict[str, Any], explained: Explanation
) -> Explanation:
    """The explanation of a kept message, with the legal holds that cover it now."""
    if explained.goes:
        return explained
    row = pa.table({name: [message[name]] for name in ("seq", "subject", "ts_ns")})
    lines = tuple(
        f"legal hold {hold.id} covers it ({hold.reason})"
        for hold in holds_of(opened)
        if hold.messages.covers(row).any()
    )
    if not lines:
        return explained
    named = f"{explained.stream} {explained.seq:,}"
    sentence = f"{named} is kept: {'; '.join(lines)}."
    return replace(explained, sentence=sentence, arithmetic=(*lines, *explained.arithmetic))


def _explainer(plan: Plan) -> Explainer:
    topic = plan.header.policy.topic
    return StreamExplainer(plan) if topic is None else TopicExplainer(plan, topic)


def _elsewhere(opened: OpenedStream, plan: Plan, ref: MessageRef) -> Explanation:
    """Explain a message in no file of the plan."""
    explainer = _explainer(plan)
    if not opened.table.exists():
        raise explainer.missing(ref)
    message, snapshot = live_message(opened, ref)
    if message is None:
        if _knows_every_file(plan) or not _has_changed(plan, snapshot):
            raise explainer.missing(ref)
        raise StalePlanError(
            f"{plan.header.stream}: message {ref[1]} is missing; this plan does not know every file, and the "
            "stream has changed since; plan again"
        )
    if _has_changed(plan, snapshot) and (
        _knows_every_file(plan) or ref[1] >= plan.cause.end(ref[0])
    ):
        line = "it was stored after this plan was made"
        sentence = f"{explainer.named(message)} is kept: {line}."
        return explanation(plan.header.stream, message, None, sentence, (line,))
    return explainer.behind(message, _reason_unread(plan))


def _reason_unread(plan: Plan) -> str:
    """The reason to keep a message in a part of the stream that the plan did not read."""
    cause = plan.cause
    if cause.next_due_ns == NEVER:
        return "nothing that the stream held is ever due, unless something is stored"
    if cause.next_due_ns is not None:
        return f"nothing that the stream held is due before {format_instant(cause.next_due_ns)}"
    return (
        f"it is one of {counted(cause.tail.messages, 'message')} behind the oldest segments, and the pass "
        "ends before them"
    )


def _knows_every_file(plan: Plan) -> bool:
    return plan.cause.next_due_ns is None and not plan.cause.tail.segments


def _has_changed(plan: Plan, snapshot: Snapshot) -> bool:
    """Whether the table differs from the one that the plan was made from."""
    return (plan.header.table_id, plan.header.version) != (snapshot.table_id, snapshot.version)
