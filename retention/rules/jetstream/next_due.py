"""When something is next due: until that instant, a pass over the same files under the same policy changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from retention.core.policy import Policy
from retention.core.spans import Array, Spans, joined
from retention.rules.jetstream.evaluate import OnePass
from schemas.messages import NEVER

_BEFORE_ALL = np.iinfo(np.int64).min


def next_due(decided: OnePass, policy: Policy, open_base: Mapping[int, int]) -> int | None:
    """The earliest instant at which any rule could let anything go, given that the pass lets nothing go.

    Time changes verdicts of the two expiry scans only, and those in one direction: what limits by count, bytes or
    subject take, a commit changes. Never later than the truth; it may be earlier.

    Args:
        decided: a pass that removes nothing.
        policy: what it was decided by.
        open_base: partition → the base of the segment that appends go to.

    Returns:
        Nanoseconds since the epoch; `NEVER`: only a commit changes anything; None: metadata does not tell.
    """
    if policy.max_age_ns is None and not policy.allow_msg_ttl:
        return NEVER
    if _others_take_some(decided):
        return None
    find = _segments_go if policy.whole_segments else _messages_go
    instants = find(joined(decided.spans), policy, open_base)
    return min(int(instants.min(initial=NEVER)), NEVER)


def _others_take_some(decided: OnePass) -> bool:
    cuts = (decided.by_messages, decided.by_bytes)
    trimmed = any(cut.whole or cut.rest for cut in cuts)
    return trimmed or (decided.surplus is not None and bool(decided.surplus.messages.any()))


def _messages_go(spans: Spans, policy: Policy, _: Mapping[int, int]) -> Array:
    """For each span: no instant before this one lets any of its messages go."""
    ages = np.full(len(spans), NEVER)
    if policy.max_age_ns is not None:
        # The scan has to pass every span before, down to its youngest message, and then to find an old one.
        passed = np.maximum.accumulate(np.append(_BEFORE_ALL, spans.max_ts_ns))[:-1]
        mortal = spans.never < spans.messages
        ages[mortal] = _later(np.maximum(passed, spans.min_ts_ns)[mortal], policy.max_age_ns)
    return np.minimum(ages, spans.min_deadline_ns) if policy.allow_msg_ttl else ages


def _segments_go(spans: Spans, policy: Policy, open_base: Mapping[int, int]) -> Array:
    """For each sealed segment in which every message can expire: no instant before this one lets all of it go."""
    if not len(spans):
        return spans.max_ts_ns
    new = (np.diff(spans.partition) != 0) | (np.diff(spans.segment) != 0)
    starts = np.append(0, np.flatnonzero(new) + 1)
    ages = np.full(len(starts), NEVER)
    if policy.max_age_ns is not None:
        # With TTLs, age need not take more of a segment than one message.
        fold = np.minimum.reduceat if policy.allow_msg_ttl else np.maximum.reduceat
        times = fold(spans.min_ts_ns if policy.allow_msg_ttl else spans.max_ts_ns, starts)
        passed = times if policy.allow_msg_ttl else np.maximum.accumulate(times)
        ages = _later(passed, policy.max_age_ns)
    if policy.allow_msg_ttl:
        ages = np.minimum(ages, np.maximum.reduceat(spans.max_deadline_ns, starts))
    mortal = np.add.reduceat(spans.never, starts) == 0
    opened = np.array([open_base.get(int(one), 0) for one in spans.partition[starts]])
    return ages[mortal & (spans.segment[starts] < opened)]


def _later(instants: Array, span_ns: int) -> Array:
    """Instants so much later; `NEVER` where no 64 bits hold that."""
    return np.where(instants > NEVER - span_ns, NEVER, instants + span_ns)
