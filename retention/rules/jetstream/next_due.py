"""The next due instant: until it, a pass over the same files under the same policy changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from retention.core.policy import Policy
from retention.core.spans import Array, Spans, by_segment, joined
from retention.rules.fold import Evaluation
from retention.rules.rule import TimedRule
from schemas.messages import NEVER


def next_due(decided: Evaluation, policy: Policy, open_base: Mapping[int, int]) -> int | None:
    """The earliest instant at which any rule could let anything go, given that the pass lets nothing go.

    Time changes verdicts of timed rules only, and those in one direction: verdicts of the others
    change with a commit. Never later than the truth; it may be earlier.

    Args:
        decided: a pass that removes nothing.
        policy: the policy that it was decided by.
        open_base: partition → the base of the segment that appends go to.

    Returns:
        Nanoseconds since the epoch; `NEVER`: only a commit changes anything; None: metadata does not tell.
    """
    rules = [
        decision.rule for decision in decided.decisions if isinstance(decision.rule, TimedRule)
    ]
    if not rules:
        return NEVER
    if any(decision.takes_any() for decision in decided.decisions if not decision.rule.expires):
        return None
    spans = joined(decided.spans)
    instants = (
        _segments_go(spans, rules, open_base)
        if policy.whole_segments
        else _messages_go(spans, rules)
    )
    return min(int(instants.min(initial=NEVER)), NEVER)


def _messages_go(spans: Spans, rules: Sequence[TimedRule]) -> Array:
    """For each span: no instant before this one lets any of its messages go."""
    return np.minimum.reduce([rule.first_due(spans) for rule in rules])


def _segments_go(spans: Spans, rules: Sequence[TimedRule], open_base: Mapping[int, int]) -> Array:
    """For each sealed segment in which every message can expire: no instant before this one lets all of it go.

    Either the last rule takes every message of it, or another one takes at least one.
    """
    segments = by_segment(spans)
    *others, last = rules
    dues = [rule.segment_due(segments, alone=False) for rule in others]
    due = np.minimum.reduce([*dues, last.segment_due(segments, alone=True)])
    opened = np.array(
        [open_base.get(int(number), 0) for number in segments.partition], dtype=np.int64
    )
    return due[(segments.never == 0) & (segments.segment < opened)]
