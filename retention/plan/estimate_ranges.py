"""Bounds of the messages that each rule removes from each span of a stream, from metadata alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from retention.core.bounds import Bounds
from retention.core.policy import Policy
from retention.core.spans import Array
from retention.rules.fold import Evaluation
from retention.rules.jetstream import delete_markers
from retention.rules.jetstream.delete_markers import LimitTotals
from retention.rules.rule import ExpiryRule


@dataclass(frozen=True)
class Range:
    """Bounds of one number, for every span."""

    lower: Array
    upper: Array

    def where(self, mask: Array) -> Range:
        """The bounds where `mask` is true, zero elsewhere."""
        return Range(np.where(mask, self.lower, 0), np.where(mask, self.upper, 0))

    def total(self) -> Bounds:
        """The sum over all spans."""
        return Bounds(int(self.lower.sum()), int(self.upper.sum()))


@dataclass(frozen=True)
class Losses:
    """Messages that a pass removes from each span."""

    by_rule: dict[str, Range]
    removed: Range
    """Messages that all rules together remove."""
    announces: bool
    """Whether the pass may store delete markers."""


def losses(decided: Evaluation, policy: Policy) -> Losses:
    """Bound the removals of a pass, including effects of delete markers that evict messages or are refused.

    Args:
        decided: the part of the pass that metadata decides.
        policy: the rules by which it was decided.
    """
    by_rule = _by_rule(decided)
    removed = _removed(decided, by_rule)
    if policy.subject_delete_marker_ttl_ns is None:
        return Losses(by_rule, removed, announces=False)
    expiring = _expiring(decided, by_rule)
    if not expiring.any():
        return Losses(by_rule, removed, announces=False)
    if _have_room(decided, policy, expiring):
        return Losses(by_rule, removed, announces=True)
    if policy.discard == "new" or delete_markers.refuses_all(policy):
        return _with_refusals(decided, by_rule, removed)
    return _with_evictions(decided, by_rule, removed)


def without_protected(lost: Losses, held: Array) -> Losses:
    """Losses if a hold may keep some or all messages of the spans in `held`, a mask."""

    def less(taken: Range) -> Range:
        return Range(np.where(held, 0, taken.lower), taken.upper)

    by_rule = {rule: less(taken) for rule, taken in lost.by_rule.items()}
    return replace(lost, by_rule=by_rule, removed=less(lost.removed))


def _by_rule(decided: Evaluation) -> dict[str, Range]:
    """Bound the messages that each rule removes from each span, without markers.

    In a span that rows decide, a rule's lower bound is its own lower bound minus the upper bounds
    of the rules before it. Its upper bound is the lesser of its own upper bound and of the messages
    that the rules before it certainly leave. Example: of 10 messages, two rules alone remove 3 to 5
    and 4 to 8; so the first removes 3 to 5, and the second 0 (4 - 5 is negative) to 7 (10 - 3).
    """
    spans, ask = decided.spans, decided.ask
    whole = decided.taken(None)
    certain = _certain(decided)
    least_before = np.zeros(len(spans), np.int64)
    most_before = np.zeros(len(spans), np.int64)
    is_behind_scan = False
    by_rule = {}
    for decision in decided.decisions:
        least, most = decision.bounds()
        goes = whole[decision.rule.name]
        # Beyond the end of the scan, a later rule removes messages that the scan would have removed first.
        unsure = np.minimum(most, sum(whole.values())) if is_behind_scan else goes
        lower = np.where(ask, np.maximum(least - most_before, 0), np.where(certain, goes, 0))
        rest = np.minimum(most, spans.messages - least_before)
        upper = np.where(ask, rest, np.where(certain, goes, unsure))
        by_rule[decision.rule.name] = Range(lower, upper)
        least_before, most_before = least_before + lower, most_before + upper
        is_behind_scan |= decision.scan is not None
    return by_rule


def _certain(decided: Evaluation) -> Array:
    """A mask of spans that the scan certainly reaches, or that certainly lose nothing beyond it.

    The scan reaches all spans before the first span that needs its rows and may end the scan.
    """
    numbers = np.arange(len(decided.spans))
    certain = np.zeros(len(numbers), dtype=bool)
    for decision in decided.decisions:
        certain |= decision.sure
        if decision.scan is not None:
            may_stop = numbers[decided.ask & decision.scan.may_stop]
            return certain | (numbers < (may_stop[0] if len(may_stop) else len(numbers)))
    return np.ones_like(certain)


def _removed(decided: Evaluation, by_rule: dict[str, Range]) -> Range:
    """Bound the removals of all rules together in each span: the sums of their bounds, at most all messages."""
    messages = decided.spans.messages
    nothing = np.zeros(len(messages), np.int64)
    lower = sum((of_rule.lower for of_rule in by_rule.values()), start=nothing)
    upper = sum((of_rule.upper for of_rule in by_rule.values()), start=nothing)
    # These are removed completely, by one rule or another.
    lower = np.where(decided.gone & ~decided.ask, messages, lower)
    return Range(np.minimum(lower, messages), np.minimum(upper, messages))


def _expiring(decided: Evaluation, by_rule: dict[str, Range]) -> Array:
    """The messages of each span that expire, at most."""
    rules = (decision.rule for decision in decided.decisions)
    by_expiry = (by_rule[rule.name].upper for rule in rules if rule.expires)
    return sum(by_expiry, start=np.zeros(len(decided.spans), np.int64))


def _have_room(decided: Evaluation, policy: Policy, expiring: Array) -> bool:
    """Whether every marker certainly fits within the limits."""
    spans = decided.spans
    left = np.ones(len(spans), dtype=bool)
    for decision in decided.decisions:
        left &= decision.rule.expires | ~decision.sure
    dying = int(expiring.sum())
    taken = delete_markers.most_bytes(dying, int(spans.bytes[expiring > 0].sum()), policy)
    totals = LimitTotals(int(spans.messages[left].sum()), int(spans.bytes[left].sum()))
    return delete_markers.have_room(taken, policy, totals)


def _with_refusals(decided: Evaluation, by_rule: dict[str, Range], removed: Range) -> Losses:
    """Losses if markers may be refused: the message of a refused marker is kept; nothing else changes."""
    nothing = np.zeros_like(removed.lower)
    less = {
        decision.rule.name: Range(nothing, by_rule[decision.rule.name].upper)
        if decision.rule.expires
        else by_rule[decision.rule.name]
        for decision in decided.decisions
    }
    lower = np.sum([of_rule.lower for of_rule in less.values()], axis=0)
    return Losses(less, Range(lower, removed.upper), announces=True)


def _with_evictions(decided: Evaluation, by_rule: dict[str, Range], removed: Range) -> Losses:
    """Losses if markers evict: a marker evicts the lowest messages, before age does or even if age never does."""
    spans, nothing = decided.spans, np.zeros_like(removed.lower)
    more = {}
    for decision in decided.decisions:
        if isinstance(decision.rule, ExpiryRule):
            more[decision.rule.name] = Range(nothing, decision.rule.most(spans))
        elif decision.rule.trims:
            more[decision.rule.name] = Range(by_rule[decision.rule.name].lower, spans.messages)
    return Losses(by_rule | more, Range(removed.lower, spans.messages), announces=True)
