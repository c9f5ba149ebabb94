"""Bounds of the effect of a pass, from metadata alone: they are always valid, and no data file is opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.core.bounds import Bounds
from retention.core.inventory import Inventory
from retention.core.json_object import JsonObject
from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.plan.estimate_ranges import Losses, Range, losses, without_protected
from retention.rules.fold import Evaluation
from retention.rules.jetstream.whole_segments import unread_answers


@dataclass(frozen=True)
class Estimate:
    """Lower and upper bounds of the effect of one pass over one stream."""

    stream: str
    as_of_ns: int
    removed_messages: Bounds
    removed_bytes: Bounds
    by_rule: dict[str, Bounds]
    segments: dict[str, Bounds]
    files_read: Bounds
    """Files that planning opens."""
    bytes_read: Bounds
    bytes_rewritten: Bounds
    """The lengths of files that lose some of their messages, as they are now."""

    def as_json(self) -> JsonObject:
        """The estimate's entry in the JSON output of `plan --estimate`."""
        return {
            "stream": self.stream,
            "removed_messages": self.removed_messages.as_json(),
            "removed_bytes": self.removed_bytes.as_json(),
            "by_rule": {rule: bounds.as_json() for rule, bounds in self.by_rule.items()},
            "segments": {state: bounds.as_json() for state, bounds in self.segments.items()},
            "files_read": self.files_read.as_json(),
            "bytes_read": self.bytes_read.as_json(),
            "bytes_rewritten": self.bytes_rewritten.as_json(),
        }


def removal_of(
    inventory: Inventory, policy: Policy, decided: Evaluation, lost: Losses
) -> tuple[Range, Range]:
    """Messages and bytes that a pass removes from each span."""
    spans = decided.spans
    messages = whole_only(inventory, spans, lost.removed) if policy.whole_segments else lost.removed
    return messages, size_of(spans, messages)


def size_of(spans: Spans, messages: Range) -> Range:
    """Bounds of the bytes removed from each span: all if every message is removed, zero to all if some are."""
    goes = messages.lower == spans.messages
    return Range(np.where(goes, spans.bytes, 0), np.where(messages.upper > 0, spans.bytes, 0))


def bounds_of(
    inventory: Inventory,
    policy: Policy,
    as_of_ns: int,
    decided: Evaluation,
    held: Array | None = None,
    on_hold: Array | None = None,
) -> Estimate:
    """Bound the effect of a pass decided from metadata.

    Args:
        inventory: the stream.
        policy: its rules.
        as_of_ns: the pass's instant.
        decided: the pass without a hold.
        held: a mask of spans with messages that may be held for consumers; None: nothing is held.
        on_hold: a mask of spans with messages that may be under a legal hold; None: none is in effect.
    """
    lost = losses(decided, policy)
    if held is not None and policy.rests_on_consumers:
        lost = without_protected(lost, held)
    if on_hold is not None:
        lost = without_protected(lost, on_hold)
    possible, size = removal_of(inventory, policy, decided, lost)
    counts = (possible.lower == decided.spans.messages) | (not policy.whole_segments)
    least, most = _reads(decided, policy, lost)
    if on_hold is not None:
        most = most + np.repeat(on_hold, np.diff(decided.spans.first_file))
    if held is not None:
        # One read finds the held messages; if they exceed the room, two more reads follow.
        most = most + 3 * np.repeat(held | decided.ask, np.diff(decided.spans.first_file))
    lengths = inventory.files["file_bytes"].to_numpy()
    return Estimate(
        stream=inventory.stream,
        as_of_ns=as_of_ns,
        removed_messages=possible.total(),
        removed_bytes=size.total(),
        by_rule={
            rule: Bounds(int(of_rule.lower[counts].sum()), limits.upper)
            for rule, of_rule in lost.by_rule.items()
            if (limits := of_rule.where(possible.upper > 0).total()).upper
        },
        segments=segment_bounds(decided.spans, possible),
        files_read=Bounds(int(least.sum()), int(most.sum())),
        bytes_read=Bounds(0, int((most * lengths).sum())),
        bytes_rewritten=rewritten(decided.spans, possible, lengths),
    )


def rewritten(spans: Spans, removed: Range, lengths: Array) -> Bounds:
    """Bound the lengths of files that lose some of their messages; of a span with several files it is not known which.

    Args:
        spans: the spans of a stream.
        removed: the messages that each loses.
        lengths: the length of each file.
    """
    files = np.diff(spans.first_file)
    surely = (removed.lower > 0) & (removed.upper < spans.messages) & (files == 1)
    maybe = (removed.upper > 0) & (removed.lower < spans.messages)
    least, most = (int(lengths[np.repeat(mask, files)].sum()) for mask in (surely, maybe))
    return Bounds(least, most)


def _reads(decided: Evaluation, policy: Policy, lost: Losses) -> tuple[Array, Array]:
    """Bound the number of times that planning opens each file: once to decide, once more for markers.

    If the estimate has not searched for deletions, planning opens files once before, and then perhaps not again.
    """
    opened = decided.ask.astype(np.int64)
    if policy.whole_segments:
        opened[[answer.span for answer in unread_answers(decided)]] = 0
    doubts = [decision.doubtful for decision in decided.decisions if decision.doubtful is not None]
    doubtful = np.any([np.zeros(len(opened), dtype=bool), *doubts], axis=0)
    files = np.diff(decided.spans.first_file)
    least = np.repeat(np.where(doubtful, 0, opened), files)
    most = np.repeat(opened + doubtful, files)
    return least, np.full_like(most, 2) + np.repeat(doubtful, files) if lost.announces else most


def whole_only(inventory: Inventory, spans: Spans, removed: Range) -> Range:
    """Bound the removed messages of each span if only sealed segments that lose every message are removed."""
    sealed = np.zeros(len(spans), dtype=bool)
    for partition, base in inventory.counters.open_base.items():
        sealed |= (spans.partition == partition) & (spans.segment < base)
    _, of_span = _segment_numbers(spans)
    held = np.bincount(of_span, weights=spans.messages)
    surely = sealed & (np.bincount(of_span, weights=removed.lower) == held)[of_span]
    maybe = sealed & (np.bincount(of_span, weights=removed.upper) == held)[of_span]
    return Range(np.where(surely, spans.messages, 0), np.where(maybe, spans.messages, 0))


def segment_bounds(spans: Spans, removed: Range) -> dict[str, Bounds]:
    """Bound the numbers of dropped, rewritten and kept segments."""
    count, of_span = _segment_numbers(spans)
    if not count:
        return dict.fromkeys(("dropped", "rewritten", "kept"), Bounds(0, 0))
    held, least, most = (
        np.bincount(of_span, weights=weights)
        for weights in (spans.messages, removed.lower, removed.upper)
    )
    dropped = Bounds(int((least == held).sum()), int((most == held).sum()))
    kept = Bounds(int((most == 0).sum()), int((least == 0).sum()))
    surely_rewritten = int(((least > 0) & (most < held)).sum())
    maybe_rewritten = int(((most > 0) & (least < held) & (held > 1)).sum())
    return {
        "dropped": dropped,
        "rewritten": Bounds(surely_rewritten, maybe_rewritten),
        "kept": kept,
    }


def _segment_numbers(spans: Spans) -> tuple[int, Array]:
    """Number the segments of spans from 0; returns the number of segments, and each span's number."""
    if not len(spans):
        return 0, np.zeros(0, dtype=np.int64)
    new = (np.diff(spans.partition) != 0) | (np.diff(spans.segment) != 0)
    numbers = np.append(0, np.cumsum(new))
    return int(numbers[-1]) + 1, numbers
