"""Decisions from a head: the same as from the whole stream, or a request for more of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.core.spans import Array, Spans
from retention.rules.jetstream.evaluate import evaluate
from retention.rules.jetstream.prefix_scan import ends_in_prefix, prefix_policy
from retention.schemas.deadlines import NEVER
from tests.support.laws import law

AS_OF = 100


@st.composite
def streams(draw: st.DrawFn) -> Spans:
    count = draw(st.integers(1, 8))
    numbers = st.lists(st.integers(0, 60), min_size=count, max_size=count)
    messages = np.array(draw(numbers)) % 5 + 1
    low, high = np.sort(np.array([draw(numbers), draw(numbers)]), axis=0)
    last = np.cumsum(messages)
    never = np.array(draw(numbers)) % (messages + 1)
    deadlines = np.minimum(np.array(draw(numbers)) % 3, messages - never)
    soonest, latest = np.sort(np.array([draw(numbers), draw(numbers)]), axis=0)
    return Spans(
        first_file=np.arange(count + 1),
        partition=np.zeros(count, np.int64),
        segment=last - messages + 1,
        messages=messages,
        bytes=messages * 10,
        min_seq=last - messages + 1,
        max_seq=last,
        min_ts_ns=low + 20,
        max_ts_ns=high + 20,
        never=never,
        deadlines=deadlines,
        min_deadline_ns=np.where(deadlines > 0, soonest + 60, NEVER),
        max_deadline_ns=np.where(deadlines > 0, latest + 60, -NEVER),
        markers=np.zeros(count, np.int64),
    )


def head_of(spans: Spans, count: int) -> Spans:
    parts = {name: values[:count] for name, values in vars(spans).items()}
    return replace(Spans(**parts), first_file=np.arange(count + 1))


def verdicts(spans: Spans, policy: Policy) -> tuple[Array, Array]:
    decided = evaluate(spans, policy, AS_OF)
    return decided.whole(None), decided.ask


@law
@given(
    spans=streams(),
    share=st.integers(1, 8),
    policy=st.builds(
        Policy,
        max_age_ns=st.none() | st.integers(20, 80),
        max_msgs=st.none() | st.integers(0, 30),
        max_bytes=st.none() | st.integers(0, 300),
        discard=st.sampled_from(["old", "new"]),
        allow_msg_ttl=st.sampled_from([False, False, True]),
    ),
)
def test_a_head_decides_what_the_stream_decides(spans: Spans, share: int, policy: Policy) -> None:
    count = min(share, len(spans))
    head = head_of(spans, count)
    later = int(spans.messages[count:].sum()), int(spans.bytes[count:].sum())
    seen = prefix_policy(policy, *later)
    whole, ask = verdicts(spans, policy)
    if seen is None:
        assert whole[count - 1] or ask[count - 1]
        return
    decided = evaluate(head, seen, AS_OF)
    if count < len(spans) and not ends_in_prefix(decided):
        return
    assert not whole[count:].any()
    assert not ask[count:].any()
    assert decided.whole(None).tolist() == whole[:count].tolist()
    assert decided.ask.tolist() == ask[:count].tolist()
