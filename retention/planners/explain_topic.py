"""Explanation of one message of a topic: its segment, the rules on it, and the readers that hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND, format_duration, format_instant, format_size
from retention.errors import MissingMessageError
from retention.plan.explanation import Explanation, explanation
from retention.plan.plan import Plan
from retention.planners.plan_rows import MessageContext, MessageRef, PlanRows
from retention.planners.topic import RULE_OF, decide_topic, segments_of
from retention.rules import RULES
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.iggy.evaluate import TopicPass
from retention.rules.iggy.segments import BY_REQUEST, BY_SIZE, STAYS, TopicSegments
from retention.rules.iggy.v09 import budget_of
from retention.rules.requests import Purge
from retention.stores.offset_table import Offsets


@dataclass(frozen=True)
class _Segments:
    """A topic at the time of its plan, and the segment to explain."""

    segments: TopicSegments
    decided: TopicPass
    offsets: Offsets
    at: int
    """The segment's number."""


@dataclass(frozen=True)
class TopicExplainer:
    """Explanations by a topic's plan; implements `Explainer`."""

    plan: Plan
    topic: TopicPolicy

    def planned(self, rows: PlanRows, around: MessageContext) -> Explanation:
        """Explain a message in a file of the plan, which removes its whole segment or keeps it."""
        request, context = (
            self.plan.header.request,
            _segments(self.plan, self.topic, around.message),
        )
        if isinstance(request, Purge | DeleteSegments):
            return self._of_removal(request, around.message, context)
        return self._of_pass(around.message, context)

    def behind(self, message: dict[str, object], line: str) -> Explanation:
        """Explain a message in a file unknown to the plan, kept because of `line`."""
        sentence = f"{self.named(message)} is kept: {line}."
        return explanation(self.plan.header.stream, message, None, sentence, (line,))

    def named(self, message: Mapping[str, object]) -> str:
        """The name of a message in sentences: its topic, offset and partition."""
        return f"{self.plan.header.stream} {message['seq']:,} of partition {message['partition']}"

    def missing(self, ref: MessageRef) -> MissingMessageError:
        """The error for a missing message."""
        return MissingMessageError(
            f"{self.plan.header.stream}: there is no message {ref[1]} in partition {ref[0]}; `retention state` tells "
            "where its partitions begin and end"
        )

    def _of_pass(self, message: Mapping[str, object], context: _Segments) -> Explanation:
        fate, held = int(context.decided.fates[context.at]), int(context.decided.held[context.at])
        lines = tuple(_lines(context, self.topic, self.plan.header.as_of_ns))
        verdict = "is removed with its segment" if fate != STAYS else "is kept"
        why = _why(context, self.topic, fate, held) or lines[-1]
        return explanation(
            self.plan.header.stream,
            message,
            RULES[RULE_OF[fate]] if fate != STAYS else None,
            f"{self.named(message)} {verdict}: {why}.",
            lines,
        )

    def _of_removal(
        self, request: Purge | DeleteSegments, message: Mapping[str, object], context: _Segments
    ) -> Explanation:
        """Explain one message by a planned removal of some or all segments."""
        segment = (message["partition"], int(context.segments.start[context.at]))
        removed = self.plan.actions.drop.files
        there = zip(*(removed[name].to_pylist() for name in ("partition", "segment")), strict=True)
        goes = segment in set(there)
        verdict = "is removed with its segment" if goes else "is kept"
        why = (
            ""
            if goes or isinstance(request, Purge)
            else f": {_why_not_requested(context, request)}"
        )
        return explanation(
            self.plan.header.stream,
            message,
            request.rule if goes else None,
            f"{self.named(message)} {verdict}: {request.wording}{why}.",
            tuple(_place_lines(context, self.topic)),
        )


def _segments(plan: Plan, topic: TopicPolicy, message: Mapping[str, object]) -> _Segments:
    """Decide the pass again, from the plan's own inputs, and find a message's segment."""
    cause, offsets = plan.cause, plan.cause.offsets or Offsets()
    stored = segments_of(cause.files, cause.open_base, topic.partitions)
    segments, decided = decide_topic(stored, topic, plan.header.as_of_ns, offsets)
    begun_before = (segments.partition == message["partition"]) & (segments.start <= message["seq"])
    return _Segments(segments, decided, offsets, int(np.flatnonzero(begun_before)[-1]))


def _why_not_requested(context: _Segments, request: DeleteSegments) -> str:
    segments, at = context.segments, context.at
    if segments.partition[at] != request.partition:
        return "it is in another partition"
    if not segments.sealed[at]:
        return "its segment is the active one, which is never removed"
    holders = _holders(context)
    if holders is None or request.up_to is None or segments.end[at] > request.up_to:
        return "its segment is none of these"
    return holders


def _why(context: _Segments, topic: TopicPolicy, fate: int, held: int) -> str | None:
    """The reason for a fate in a few words; None: the compared numbers explain it."""
    if fate == BY_REQUEST:
        return _asked_line(context)
    if fate == BY_SIZE:
        return _size_line(context, topic)
    if fate != STAYS:
        return None
    if held != STAYS:
        return _holders(context)
    if not context.segments.sealed[context.at]:
        return "its segment is the active one, which is never removed"
    return None


def _lines(context: _Segments, topic: TopicPolicy, as_of_ns: int) -> Iterator[str]:
    segments, at = context.segments, context.at
    yield from _place_lines(context, topic)
    if topic.profile == "modern" and segments.partition[at] in context.offsets.watermarks:
        yield _asked_line(context)
    if topic.max_topic_size is not None:
        yield _size_line(context, topic)
    if topic.message_expiry_us is not None:
        compared = segments.max_us if topic.profile == "modern" else segments.last_us
        newest_ns = int(compared[at]) * MICROSECOND
        expiry = format_duration(topic.message_expiry_us * MICROSECOND)
        which = "newest" if topic.profile == "modern" else "last"
        age = format_duration(as_of_ns - newest_ns)
        yield f"message_expiry {expiry}: its {which} message is of {format_instant(newest_ns)}, {age} old"


def _place_lines(context: _Segments, topic: TopicPolicy) -> Iterator[str]:
    segments, at = context.segments, context.at
    sealed = "sealed" if segments.sealed[at] else "active"
    yield f"segment {segments.start[at]}: {sealed}, offsets {segments.start[at]:,} to {segments.end[at]:,}"
    holders = _holders(context)
    if holders is not None and topic.respect_consumer_offsets:
        yield holders


def _asked_line(context: _Segments) -> str:
    up_to = context.offsets.watermarks[int(context.segments.partition[context.at])]
    return f"delete_segments has asked for what ends by offset {up_to:,}"


def _size_line(context: _Segments, topic: TopicPolicy) -> str:
    segments, at = context.segments, context.at
    in_partition = segments.partition == segments.partition[at]
    if topic.profile == "v8":
        whole = format_size(int(segments.bytes.sum()))
        return f"max_topic_size {format_size(topic.max_topic_size or 0)}: the topic has {whole}"
    from_here = in_partition & segments.sealed & (segments.start >= segments.start[at])
    rest, budget = int(segments.bytes[from_here].sum()), budget_of(topic) or 0
    return (
        f"max_topic_size {format_size(topic.max_topic_size or 0)}: it and the later sealed segments have "
        f"{format_size(rest)}, and its partition may keep {format_size(budget)}"
    )


def _holders(context: _Segments) -> str | None:
    """Name the readers that have not read a segment to its end; None: all have."""
    partition, end = (
        int(context.segments.partition[context.at]),
        int(context.segments.end[context.at]),
    )
    behind = [
        f"{reader.kind} {reader.name} has read up to {stored.offset:,} ({format_instant(stored.stored_ns)})"
        for reader, stored in sorted(context.offsets.of.items())
        if reader.partition == partition and stored.offset < end
    ]
    return "; ".join(behind) or None
