"""Estimates: what a pass would do, in bounds that always hold, without opening a data file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from retention.engines.choice import Engines
from retention.errors import RefusedError
from retention.opened import OpenedStream
from retention.passes.hearing import hear
from retention.passes.left import untouched
from retention.passes.planning import decide
from retention.passes.releasing import decide_release
from retention.policy import Policy
from retention.rules import (
    LIMIT_RULES,
    MAX_AGE,
    MAX_BYTES,
    MAX_MSGS,
    MAX_MSGS_PER_SUBJECT,
    MSG_TTL,
    RULES,
)
from retention.rules.one_pass import OnePass
from retention.rules.release import Release
from retention.rules.spans import Array, Spans, spans_of
from retention.rules.ttl import most_due
from retention.segments import Inventory


@dataclass(frozen=True)
class Bounds:
    """The exact number is at least `lower` and at most `upper`."""

    lower: int
    upper: int

    def as_json(self) -> dict[str, int]:
        """Both bounds, by name."""
        return {"lower": self.lower, "upper": self.upper}


@dataclass(frozen=True)
class Estimate:
    """What one pass over one stream would do at most and at least."""

    stream: str
    as_of_ns: int
    removed_messages: Bounds
    removed_bytes: Bounds
    by_rule: dict[str, Bounds]
    segments: dict[str, Bounds]
    files_read: Bounds
    """Files that planning would open."""
    bytes_read: Bounds

    def as_json(self) -> dict[str, Any]:
        """The estimate's entry in the JSON output of `plan --estimate`."""
        return {
            "stream": self.stream,
            "removed_messages": self.removed_messages.as_json(),
            "removed_bytes": self.removed_bytes.as_json(),
            "by_rule": {rule: bounds.as_json() for rule, bounds in self.by_rule.items()},
            "segments": {state: bounds.as_json() for state, bounds in self.segments.items()},
            "files_read": self.files_read.as_json(),
            "bytes_read": self.bytes_read.as_json(),
        }


@dataclass(frozen=True)
class _Range:
    """Bounds of one number, for every span."""

    lower: Array
    upper: Array

    def where(self, mask: Array) -> _Range:
        """The bounds where `mask` holds, nothing elsewhere."""
        return _Range(np.where(mask, self.lower, 0), np.where(mask, self.upper, 0))

    def total(self) -> Bounds:
        """The sum over all spans."""
        return Bounds(int(self.lower.sum()), int(self.upper.sum()))


def estimate(opened: OpenedStream, as_of_ns: int) -> Estimate:
    """Bound every number of the plan at `as_of_ns` from statistics alone.

    Raises:
        RefusedError: files that another writer appended have no statistics yet.
    """
    if not opened.store.exists():
        return _nothing(opened.name, as_of_ns)
    snapshot = opened.store.snapshot()
    unread = opened.store.unread(snapshot)
    if unread:
        raise RefusedError(
            f"{opened.name}: {unread} files have no statistics yet, so nothing can be said about them unopened; run "
            "`retention plan` without --estimate once, which reads their narrow columns"
        )
    return bounds_now(opened, opened.store.inventory(snapshot), as_of_ns)


def bounds_now(opened: OpenedStream, inventory: Inventory, as_of_ns: int) -> Estimate:
    """Bound the numbers of a pass over an inventory.

    Raises:
        RefusedError: a consumer's state contradicts itself.
    """
    policy = opened.config.policy()
    if policy.retention != "limits":
        spans = spans_of(inventory.files)
        interests = hear(opened, inventory).interests
        released = decide_release(opened, inventory, spans, policy, interests)
        return released_bounds(inventory, policy, as_of_ns, spans, released)
    with Engines("local") as engines:
        decided = decide(opened, untouched(inventory), policy, as_of_ns, engines)
    return bounds_of(inventory, policy, as_of_ns, decided)


def bounds_of(inventory: Inventory, policy: Policy, as_of_ns: int, decided: OnePass) -> Estimate:
    """Bound the numbers of a pass that metadata has decided as far as it can."""
    spans = decided.spans
    by_rule = _by_rule(decided)
    removed = _removed(decided, by_rule)
    possible = _whole_only(inventory, decided.spans, removed) if policy.whole_segments else removed
    goes = possible.lower == spans.messages
    counts = goes | (not policy.whole_segments)
    loses = _Range(np.where(goes, spans.bytes, 0), np.where(possible.upper > 0, spans.bytes, 0))
    asked = np.repeat(decided.ask, np.diff(spans.first_file))
    lengths = inventory.files["file_bytes"].to_numpy()
    return Estimate(
        stream=inventory.stream,
        as_of_ns=as_of_ns,
        removed_messages=possible.total(),
        removed_bytes=loses.total(),
        by_rule={
            rule: Bounds(int(of_rule.lower[counts].sum()), limits.upper)
            for rule, of_rule in by_rule.items()
            if (limits := of_rule.where(possible.upper > 0).total()).upper
        },
        segments=_segments(spans, possible),
        files_read=Bounds(int(asked.sum()), int(asked.sum())),
        bytes_read=Bounds(0, int(lengths[asked].sum())),
    )


def released_bounds(
    inventory: Inventory, policy: Policy, as_of_ns: int, spans: Spans, released: Release
) -> Estimate:
    """Bound a pass that begins with a release: limits may take anything of what rows say is left."""
    limits = policy.limits
    asked = np.repeat(released.ask, np.diff(spans.first_file))
    least = np.where(released.whole, spans.messages, 0)
    by_release = np.where(released.whole | released.ask, spans.messages, 0)
    most = spans.messages if limits else by_release
    possible = _Range(least, most)
    if policy.whole_segments:
        possible = _whole_only(inventory, spans, possible)
    goes = possible.lower == spans.messages
    loses = _Range(np.where(goes, spans.bytes, 0), np.where(possible.upper > 0, spans.bytes, 0))
    rest = Bounds(0, int(np.where(released.whole, 0, possible.upper).sum()))
    release = Bounds(
        int(np.where(goes, least, 0).sum()), int(np.minimum(by_release, possible.upper).sum())
    )
    lengths = inventory.files["file_bytes"].to_numpy()
    # Limits may ask the same rows again.
    opened = int(asked.sum())
    also, as_bytes = (len(lengths), int(lengths.sum())) if limits else (0, 0)
    by_rule = {policy.retention: release} | dict.fromkeys(limits, rest)
    return Estimate(
        stream=inventory.stream,
        as_of_ns=as_of_ns,
        removed_messages=possible.total(),
        removed_bytes=loses.total(),
        by_rule={rule: bounds for rule, bounds in by_rule.items() if bounds.upper},
        segments=_segments(spans, possible),
        files_read=Bounds(opened, opened + also),
        bytes_read=Bounds(0, int(lengths[asked].sum()) + as_bytes),
    )


def _by_rule(decided: OnePass) -> dict[str, _Range]:
    """What each rule takes of each span."""
    spans, ask = decided.spans, decided.ask
    numbers = np.arange(len(spans))
    settled = decided.by_rule(None)
    certain = _reached(decided) | decided.below | decided.spent
    sure = np.where(certain[:, None], settled, 0)
    counted = np.where(numbers == decided.by_messages.whole, decided.by_messages.rest, 0)
    weighed = (numbers == decided.by_bytes.whole) & (decided.by_bytes.rest > 0)
    nothing = np.zeros(len(spans), np.int64)
    beyond = nothing if decided.surplus is None else decided.surplus.messages
    aged = np.zeros(len(spans), bool) if decided.age is None else numbers < decided.age.reach
    rest = spans.messages - counted
    asked = {
        MAX_MSGS: _Range(counted, counted),
        MAX_BYTES: _Range(np.where(weighed & (counted == 0), 1, 0), np.where(weighed, rest, 0)),
        MAX_MSGS_PER_SUBJECT: _Range(
            np.where(weighed, 0, np.maximum(beyond - counted, 0)), np.minimum(beyond, rest)
        ),
        MAX_AGE: _Range(nothing, np.where(aged, rest, 0)),
        MSG_TTL: _Range(nothing, np.minimum(_most_due(decided), rest)),
    }
    most = settled.copy()
    most[:, RULES.index(MSG_TTL)] = np.minimum(_most_due(decided), settled.sum(axis=1))
    return {
        rule: _Range(
            np.where(ask, asked[rule].lower, sure[:, at]),
            np.where(ask, asked[rule].upper, np.where(certain, settled[:, at], most[:, at])),
        )
        for at, rule in ((RULES.index(rule), rule) for rule in LIMIT_RULES)
    }


def _most_due(decided: OnePass) -> Array:
    """The most messages of each span whose own deadlines can have passed."""
    if decided.ttl is None:
        return np.zeros(len(decided.spans), np.int64)
    return most_due(decided.ttl, decided.spans)


def _reached(decided: OnePass) -> Array:
    """Spans that the age scan surely reaches: no asked span before them may end it; a mask."""
    if decided.age is None:
        return np.ones(len(decided.spans), dtype=bool)
    may_stop = np.flatnonzero(decided.ask & (decided.spans.max_ts_ns > decided.age.cutoff_ns))
    first = int(may_stop[0]) if len(may_stop) else len(decided.spans)
    return np.arange(len(decided.spans)) < first


def _removed(decided: OnePass, by_rule: dict[str, _Range]) -> _Range:
    """What all rules together take of each span: at least what one takes, at most what each could."""
    lower = np.sum([of_rule.lower for of_rule in by_rule.values()], axis=0)
    upper = np.sum([of_rule.upper for of_rule in by_rule.values()], axis=0)
    messages = decided.spans.messages
    if decided.ttl is not None:
        # These go whole, whichever of the two scans comes to them.
        lower = np.where(decided.ttl.whole & ~decided.ask, messages, lower)
    return _Range(np.minimum(lower, messages), np.minimum(upper, messages))


def _whole_only(inventory: Inventory, spans: Spans, removed: _Range) -> _Range:
    """Bounds when only sealed segments that lose every message go."""
    sealed = np.zeros(len(spans), dtype=bool)
    for partition, base in inventory.counters.open_base.items():
        sealed |= (spans.partition == partition) & (spans.segment < base)
    _, of_span = _segment_numbers(spans)
    held = np.bincount(of_span, weights=spans.messages)
    surely = sealed & (np.bincount(of_span, weights=removed.lower) == held)[of_span]
    maybe = sealed & (np.bincount(of_span, weights=removed.upper) == held)[of_span]
    return _Range(np.where(surely, spans.messages, 0), np.where(maybe, spans.messages, 0))


def _segments(spans: Spans, removed: _Range) -> dict[str, Bounds]:
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
    """How many segments there are, and the number of each span's."""
    if not len(spans):
        return 0, np.zeros(0, dtype=np.int64)
    new = (np.diff(spans.partition) != 0) | (np.diff(spans.segment) != 0)
    numbers = np.append(0, np.cumsum(new))
    return int(numbers[-1]) + 1, numbers


def _nothing(stream: str, as_of_ns: int) -> Estimate:
    none = Bounds(0, 0)
    segments = dict.fromkeys(("dropped", "rewritten", "kept"), none)
    return Estimate(stream, as_of_ns, none, none, {}, segments, none, none)
