"""Why one message of a topic stays or goes: its segment, the rules that look at it, and who holds it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND, format_duration, format_instant, format_size
from retention.datafile import parquet
from retention.errors import UsageError
from retention.plan.plan import Plan
from retention.planners.explain import Explanation
from retention.planners.topic import RULE_OF, TopicLook, look_at_topic
from retention.rules import RULES
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.iggy.segments import ASKED, BY_SIZE, STAYS
from retention.rules.iggy.v09 import budget_of
from retention.rules.requests import Purge

_NARROW = ("seq", "subject", "ts_ns", "size")


def explain_topic(opened: OpenedStream, place: tuple[int, int], as_of_ns: int) -> Explanation:
    """Explain one message, as a pass at `as_of_ns` would treat it.

    Args:
        opened: the topic.
        place: partition and offset.
        as_of_ns: the pass's one instant.

    Raises:
        UsageError: no message with that offset is in the partition, or it is no topic.
        RefusedError, DamagedError: as planning.
    """
    seen, message = _seen(opened, place, as_of_ns)
    topic = topic_of(opened).policy()
    at = _segment_at(seen, place)
    fate, held = int(seen.decided.fates[at]), int(seen.decided.held[at])
    lines = tuple(_lines(seen, topic, at, as_of_ns))
    named = f"{opened.name} {place[1]:,} of partition {place[0]}"
    verdict = "goes with its segment" if fate != STAYS else "stays"
    return Explanation(
        stream=opened.name,
        partition=place[0],
        **message,
        goes=fate != STAYS,
        rule=RULES[RULE_OF[fate]] if fate != STAYS else None,
        sentence=f"{named} {verdict}: {_why(seen, topic, at, fate, held) or lines[-1]}.",
        arithmetic=lines,
    )


def explain_removal(
    opened: OpenedStream, plan: Plan, request: Purge | DeleteSegments, place: tuple[int, int]
) -> Explanation:
    """Explain one message, as a planned removal of segments, or of all of them, would treat it.

    Args:
        opened: the topic.
        plan: what was planned.
        request: what it carries out.
        place: partition and offset.

    Raises:
        UsageError, RefusedError, DamagedError: as `explain_topic`.
    """
    seen, message = _seen(opened, place, plan.as_of_ns)
    topic = topic_of(opened).policy()
    at = _segment_at(seen, place)
    there = zip(*(plan.drops[name].to_pylist() for name in ("partition", "segment")), strict=True)
    goes = (place[0], int(seen.segments.start[at])) in set(there)
    why = f": {_why_not_asked(seen, request, at)}"
    named = f"{opened.name} {place[1]:,} of partition {place[0]}"
    return Explanation(
        stream=opened.name,
        partition=place[0],
        **message,
        goes=goes,
        rule=request.rule if goes else None,
        sentence=f"{named} {'goes with its segment' if goes else 'stays'}: {request.wording}{'' if goes else why}.",
        arithmetic=tuple(_place_lines(seen, topic, at)),
    )


def _why_not_asked(seen: TopicLook, request: Purge | DeleteSegments, at: int) -> str:
    segments = seen.segments
    if isinstance(request, Purge):
        return "it is newer than the plan"
    if segments.partition[at] != request.partition:
        return "it is in another partition"
    if not segments.sealed[at]:
        return "its segment is the active one, which never goes"
    if request.up_to is None or segments.end[at] > request.up_to:
        return "its segment is none of these"
    return _holders(seen, at) or "its segment came back since"


def _seen(
    opened: OpenedStream, place: tuple[int, int], as_of_ns: int
) -> tuple[TopicLook, dict[str, Any]]:
    """What a pass would do, and the narrow columns of a message, which must be there."""
    topic = topic_of(opened).policy()
    if opened.store.exists():
        seen = look_at_topic(opened, topic, as_of_ns)
        message = _message(opened, seen, place)
        if message is not None:
            return seen, message
    raise UsageError(
        f"{opened.name}: there is no message {place[1]} in partition {place[0]}; `retention state` tells where its "
        "partitions begin and end"
    )


def _message(
    opened: OpenedStream, seen: TopicLook, place: tuple[int, int]
) -> dict[str, Any] | None:
    """The narrow columns of a message; None: it is not there."""
    partition, seq = place
    files = seen.inventory.files
    inside = pc.and_(
        pc.and_(pc.equal(files["partition"], partition), pc.less_equal(files["min_seq"], seq)),
        pc.greater_equal(files["max_seq"], seq),
    )
    for file in opened.store.data_files(files.filter(inside)):
        rows, _ = parquet.read_columns(file, _NARROW)
        found: list[dict[str, Any]] = rows.filter(pc.equal(rows["seq"], seq)).to_pylist()
        if found:
            return found[0]
    return None


def _segment_at(seen: TopicLook, place: tuple[int, int]) -> int:
    mine = (seen.segments.partition == place[0]) & (seen.segments.start <= place[1])
    return int(np.flatnonzero(mine)[-1])


def _why(seen: TopicLook, topic: TopicPolicy, at: int, fate: int, held: int) -> str | None:
    """The reason in a few words; None: what the rules compared says it best."""
    if fate == ASKED:
        return _asked_line(seen, at)
    if fate == BY_SIZE:
        return _size_line(seen, topic, at)
    if fate != STAYS:
        return None
    if held != STAYS:
        return _holders(seen, at)
    if not seen.segments.sealed[at]:
        return "its segment is the active one, which never goes"
    return None


def _lines(seen: TopicLook, topic: TopicPolicy, at: int, as_of_ns: int) -> Iterator[str]:
    segments = seen.segments
    yield from _place_lines(seen, topic, at)
    if topic.profile == "modern" and segments.partition[at] in seen.offsets.watermarks:
        yield _asked_line(seen, at)
    if topic.max_topic_size is not None:
        yield _size_line(seen, topic, at)
    if topic.message_expiry_us is not None:
        compared = segments.max_us if topic.profile == "modern" else segments.last_us
        newest_ns = int(compared[at]) * MICROSECOND
        expiry = format_duration(topic.message_expiry_us * MICROSECOND)
        which = "newest" if topic.profile == "modern" else "last"
        age = format_duration(as_of_ns - newest_ns)
        yield f"message_expiry {expiry}: its {which} message is of {format_instant(newest_ns)}, {age} old"


def _place_lines(seen: TopicLook, topic: TopicPolicy, at: int) -> Iterator[str]:
    segments = seen.segments
    sealed = "sealed" if segments.sealed[at] else "active"
    yield f"segment {segments.start[at]}: {sealed}, offsets {segments.start[at]:,} to {segments.end[at]:,}"
    holders = _holders(seen, at)
    if holders is not None and topic.respect_consumer_offsets:
        yield holders


def _asked_line(seen: TopicLook, at: int) -> str:
    up_to = seen.offsets.watermarks[int(seen.segments.partition[at])]
    return f"delete_segments has asked for what ends by offset {up_to:,}"


def _size_line(seen: TopicLook, topic: TopicPolicy, at: int) -> str:
    segments = seen.segments
    mine = segments.partition == segments.partition[at]
    if topic.profile == "v8":
        whole = format_size(int(segments.bytes.sum()))
        return f"max_topic_size {format_size(topic.max_topic_size or 0)}: the topic has {whole}"
    from_here = mine & segments.sealed & (segments.start >= segments.start[at])
    rest, budget = int(segments.bytes[from_here].sum()), budget_of(topic) or 0
    return (
        f"max_topic_size {format_size(topic.max_topic_size or 0)}: it and the sealed segments behind it have "
        f"{format_size(rest)}, and its partition may keep {format_size(budget)}"
    )


def _holders(seen: TopicLook, at: int) -> str | None:
    """Who has not read a segment to its end; None: everybody has."""
    partition, end = int(seen.segments.partition[at]), int(seen.segments.end[at])
    behind = [
        f"{reader.kind} {reader.name} has read up to {stored.offset:,} ({format_instant(stored.stored_ns)})"
        for reader, stored in sorted(seen.offsets.of.items())
        if reader.partition == partition and stored.offset < end
    ]
    return "; ".join(behind) or None
