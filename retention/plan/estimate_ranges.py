"""What each rule takes of each span of a stream, at least and at most, as far as metadata has decided a pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from retention.core.policy import Policy
from retention.core.spans import Array
from retention.rules import (
    LIMIT_RULES,
    MAX_AGE,
    MAX_BYTES,
    MAX_MSGS,
    MAX_MSGS_PER_SUBJECT,
    MSG_TTL,
    RULES,
)
from retention.rules.jetstream import delete_markers
from retention.rules.jetstream.delete_markers import Totals
from retention.rules.jetstream.evaluate import OnePass
from retention.rules.jetstream.msg_ttl import most_due

_LIMITS = (MAX_MSGS, MAX_BYTES, MAX_MSGS_PER_SUBJECT)
_EXPIRY = (MAX_AGE, MSG_TTL)


@dataclass(frozen=True)
class Bounds:
    """The exact number is at least `lower` and at most `upper`."""

    lower: int
    upper: int

    def as_json(self) -> dict[str, int]:
        """Both bounds, by name."""
        return {"lower": self.lower, "upper": self.upper}


@dataclass(frozen=True)
class Range:
    """Bounds of one number, for every span."""

    lower: Array
    upper: Array

    def where(self, mask: Array) -> Range:
        """The bounds where `mask` holds, nothing elsewhere."""
        return Range(np.where(mask, self.lower, 0), np.where(mask, self.upper, 0))

    def total(self) -> Bounds:
        """The sum over all spans."""
        return Bounds(int(self.lower.sum()), int(self.upper.sum()))


@dataclass(frozen=True)
class Losses:
    """Messages that a pass takes of each span."""

    by_rule: dict[str, Range]
    removed: Range
    """By all rules together."""
    announces: bool
    """Whether it may store delete markers."""


def losses(decided: OnePass, policy: Policy) -> Losses:
    """Bound what a pass takes, also where its delete markers evict messages or are refused.

    Args:
        decided: the pass, as far as metadata decides it.
        policy: what it was decided by.
    """
    by_rule = _by_rule(decided)
    removed = _removed(decided, by_rule)
    expiring = by_rule[MAX_AGE].upper + by_rule[MSG_TTL].upper
    if policy.subject_delete_marker_ttl_ns is None or not expiring.any():
        return Losses(by_rule, removed, announces=False)
    if _have_room(decided, policy, expiring):
        return Losses(by_rule, removed, announces=True)
    if policy.discard == "new" or delete_markers.refuses_all(policy):
        return _with_refusals(by_rule, removed)
    return _with_evictions(decided, policy, by_rule, removed)


def spared(lost: Losses, held: Array) -> Losses:
    """The same where a hold may spare some messages of these spans, or all; `held` is a mask."""

    def less(one: Range) -> Range:
        return Range(np.where(held, 0, one.lower), one.upper)

    by_rule = {rule: less(one) for rule, one in lost.by_rule.items()}
    return replace(lost, by_rule=by_rule, removed=less(lost.removed))


def _by_rule(decided: OnePass) -> dict[str, Range]:
    """What each rule takes of each span, markers left out."""
    spans, ask = decided.spans, decided.ask
    numbers = np.arange(len(spans))
    settled = decided.by_rule(None)
    certain = _reached(decided) | decided.below | decided.spent
    counted = np.where(numbers == decided.by_messages.whole, decided.by_messages.rest, 0)
    weighed = (numbers == decided.by_bytes.whole) & (decided.by_bytes.rest > 0)
    nothing = np.zeros(len(spans), np.int64)
    beyond = nothing if decided.surplus is None else decided.surplus.messages
    rest = spans.messages - counted
    asked = {
        MAX_MSGS: Range(counted, counted),
        MAX_BYTES: Range(np.where(weighed & (counted == 0), 1, 0), np.where(weighed, rest, 0)),
        MAX_MSGS_PER_SUBJECT: Range(
            np.where(weighed, 0, np.maximum(beyond - counted, 0)), np.minimum(beyond, rest)
        ),
        MAX_AGE: Range(nothing, np.minimum(_most_aged(decided), rest)),
        MSG_TTL: Range(nothing, np.minimum(_most_due(decided), rest)),
    }
    most_due_of_whole = np.minimum(_most_due(decided), settled.sum(axis=1))

    def bounded(rule: str) -> Range:
        whole = settled[:, RULES.index(rule)]
        unsure = most_due_of_whole if rule == MSG_TTL else whole
        least, most = np.where(certain, whole, 0), np.where(certain, whole, unsure)
        return Range(
            np.where(ask, asked[rule].lower, least), np.where(ask, asked[rule].upper, most)
        )

    return {rule: bounded(rule) for rule in LIMIT_RULES}


def _most_aged(decided: OnePass) -> Array:
    """The most messages of each span that the age scan can take."""
    spans, age = decided.spans, decided.age
    if age is None:
        return np.zeros(len(spans), np.int64)
    has_old = (np.arange(len(spans)) < age.reach) & (spans.min_ts_ns <= age.cutoff_ns)
    stay = np.maximum(spans.never, spans.max_ts_ns > age.cutoff_ns)
    return np.where(has_old, spans.messages - stay, 0)


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


def _removed(decided: OnePass, by_rule: dict[str, Range]) -> Range:
    """What all rules together take of each span: at least what one takes, at most what each could."""
    lower = np.sum([of_rule.lower for of_rule in by_rule.values()], axis=0)
    upper = np.sum([of_rule.upper for of_rule in by_rule.values()], axis=0)
    messages = decided.spans.messages
    if decided.ttl is not None:
        # These go whole, whichever of the two scans comes to them.
        lower = np.where(decided.ttl.whole & ~decided.ask, messages, lower)
    return Range(np.minimum(lower, messages), np.minimum(upper, messages))


def _have_room(decided: OnePass, policy: Policy, expiring: Array) -> bool:
    """Whether every marker surely fits beside what the limits leave."""
    spans = decided.spans
    left = ~(decided.below | decided.spent)
    dying = int(expiring.sum())
    taken = delete_markers.most_bytes(dying, int(spans.bytes[expiring > 0].sum()), policy)
    totals = Totals(int(spans.messages[left].sum()), int(spans.bytes[left].sum()))
    return delete_markers.have_room(taken, policy, totals)


def _with_refusals(by_rule: dict[str, Range], removed: Range) -> Losses:
    """A message stays whose marker is refused; nothing else changes."""
    less = by_rule | {
        rule: Range(np.zeros_like(removed.lower), by_rule[rule].upper) for rule in _EXPIRY
    }
    lower = np.sum([less[rule].lower for rule in _LIMITS], axis=0)
    return Losses(less, Range(lower, removed.upper), announces=True)


def _with_evictions(
    decided: OnePass, policy: Policy, by_rule: dict[str, Range], removed: Range
) -> Losses:
    """A marker takes the lowest messages, before age comes to them or that it else would never come to."""
    spans, nothing = decided.spans, np.zeros_like(removed.lower)
    mortal = spans.messages - spans.never
    more = {
        MAX_AGE: Range(nothing, mortal if policy.max_age_ns is not None else nothing),
        MSG_TTL: Range(nothing, _most_due(decided)),
    }
    for rule, limit in ((MAX_MSGS, policy.max_msgs), (MAX_BYTES, policy.max_bytes)):
        if limit is not None:
            more[rule] = Range(by_rule[rule].lower, spans.messages)
    return Losses(by_rule | more, Range(removed.lower, spans.messages), announces=True)
