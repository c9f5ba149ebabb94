"""The next due instant: until then, a pass over the same files under the same policy changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from retention.core.policy import Policy
from retention.core.spans import Array, Spans, by_segment, joined
from retention.rules.fold import Evaluation
from retention.rules.rule import TimedRule
from retention.schemas.deadlines import NEVER


def next_due(decided: Evaluation, policy: Policy, open_base: Mapping[int, int]) -> int | None:
    """The earliest instant at which a rule may remove anything, given that the pass removes nothing.

    Time changes only verdicts of timed rules, and only in one direction; verdicts of other rules
    change with a commit. The instant is a lower bound.

    Args:
        decided: a pass that removes nothing.
        policy: the policy of the pass.
        open_base: partition → the base of the segment that appends go to.

    Returns:
        Nanoseconds since the epoch; `NEVER`: only a commit changes anything; None: unknown from metadata.
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
    """For each span: a lower bound of the instant at which any of its messages is removed."""
    return np.minimum.reduce([rule.first_due(spans) for rule in rules])


def _segments_go(spans: Spans, rules: Sequence[TimedRule], open_base: Mapping[int, int]) -> Array:
    """For each sealed segment with only expirable messages: a lower bound of the instant at which all of it is removed.

    Either the last rule removes every message of it, or another rule removes at least one.
    """
    segments = by_segment(spans)
    *others, last = rules
    dues = [rule.segment_due(segments, alone=False) for rule in others]
    due = np.minimum.reduce([*dues, last.segment_due(segments, alone=True)])
    opened = np.array(
        [open_base.get(int(number), 0) for number in segments.partition], dtype=np.int64
    )
    return due[(segments.never == 0) & (segments.segment < opened)]
