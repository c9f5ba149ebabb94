"""Laws of appends to a partition: batches, times and segments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.topic_policy import Profile, TopicPolicy
from retention.layout.segment_roll import ActiveSegment, Tail
from retention.layout.topic_segment_roll import (
    AppendedBatch,
    accounted_sizes,
    header_bytes_of_batch,
    lay_out,
    place_stored,
)

PROFILES: tuple[Profile, ...] = ("modern", "v8")
SIZES = st.lists(st.integers(1, 400), max_size=30)


@st.composite
def policies(draw: st.DrawFn) -> TopicPolicy:
    return TopicPolicy(
        partitions=1,
        segment_size=draw(st.integers(1, 3_000)),
        max_message_size=draw(st.integers(1, 2_000)),
        profile=draw(st.sampled_from(PROFILES)),
        roll_after_us=draw(st.none() | st.integers(1, 9)),
    )


@st.composite
def tails(draw: st.DrawFn) -> Tail:
    base = draw(st.integers(0, 9))
    held = draw(st.integers(0, 5))
    first_ts_ns = draw(st.integers(1, 60)) * 1_000 if held else None
    active = ActiveSegment(base, draw(st.integers(1, 5_000)) if held else 0, first_ts_ns)
    return Tail(base + held, active, draw(st.none() | st.integers(1, 60)))


def array(sizes: Sequence[int]) -> np.ndarray:
    return np.array(sizes, dtype=np.int64)


def of(batches: Sequence[AppendedBatch]) -> list[tuple[int, int, int, int, int]]:
    return [(one.base, one.first_seq, one.end - one.start, one.ts_us, one.bytes) for one in batches]


@given(tails(), SIZES, policies(), st.integers(1, 99), st.data())
def test_whoever_appends_the_batches_in_several_runs_gets_the_same_segments(
    tail: Tail, sizes: list[int], policy: TopicPolicy, now_us: int, data: st.DataObject
) -> None:
    at_once, after = lay_out(tail, array(sizes), policy, now_us)
    cuts = [batch.end for batch in at_once if data.draw(st.booleans())]
    one_by_one, at = [], 0
    for end in [*cuts, len(sizes)]:
        batches, tail = lay_out(tail, array(sizes[at:end]), policy, now_us)
        one_by_one += batches
        at = end
    assert of(one_by_one) == of(at_once)
    assert tail == after


@given(tails(), SIZES, policies(), st.integers(1, 99))
def test_every_message_is_counted_once_in_an_offset_of_its_own(
    tail: Tail, sizes: list[int], policy: TopicPolicy, now_us: int
) -> None:
    batches, after = lay_out(tail, array(sizes), policy, now_us)
    assert [one.start for one in batches] == [0, *(one.end for one in batches)][: len(batches)]
    assert [one.first_seq - one.start for one in batches] == [tail.next_seq] * len(batches)
    assert after.next_seq == tail.next_seq + len(sizes)
    counted = accounted_sizes(array(sizes), batches, policy)
    assert counted.sum() == sum(sizes) + header_bytes_of_batch(policy) * len(batches)
    for one in batches:
        assert one.bytes == counted[one.start : one.end].sum()
        assert one.bytes <= policy.max_message_size or one.end - one.start == 1


@given(tails(), SIZES, policies(), st.integers(1, 99))
def test_a_segment_takes_no_batch_once_it_is_full(
    tail: Tail, sizes: list[int], policy: TopicPolicy, now_us: int
) -> None:
    """Like a server with one batch after another."""
    batches, after = lay_out(tail, array(sizes), policy, now_us)
    assert tail.active is not None
    base, held, first = tail.active.base, tail.active.bytes, tail.active.first_ts_ns
    last_us, seq = tail.last_us, tail.next_seq
    for one in batches:
        is_live = policy.profile == "modern" and last_us is not None
        ts_us = max(now_us, (last_us or 0) + 1) if is_live else now_us
        is_old = (
            policy.roll_after_us is not None
            and first is not None
            and first // 1_000 + policy.roll_after_us <= ts_us
        )
        if is_old or (policy.profile == "modern" and held >= policy.segment_size):
            base, held, first = seq, 0, None
        assert (one.base, one.ts_us, one.first_seq) == (base, ts_us, seq)
        is_full = (held if policy.profile == "v8" else held + one.bytes) >= policy.segment_size
        held, first = held + one.bytes, ts_us * 1_000 if first is None else first
        last_us, seq = ts_us, seq + one.end - one.start
        if is_full:
            base, held, first = seq, 0, None
    assert after == Tail(seq, ActiveSegment(base, held, first), last_us)


@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_appended_changes_nothing(profile: Profile) -> None:
    tail = Tail(7, ActiveSegment(3, 10**9, 5_000), 9)
    assert lay_out(tail, array([]), TopicPolicy(1, 1, 1, profile), 10**9) == ([], tail)


def stored(*numbers: tuple[int, int, int, int]) -> list[AppendedBatch]:
    """Batches of a server: first offset, messages, time in microseconds, bytes."""
    return [
        AppendedBatch(-1, 0, count, first, ts_us, size) for first, count, ts_us, size in numbers
    ]


STORED = TopicPolicy(partitions=1, segment_size=1_000, max_message_size=1_000)
FULL, THIRD = 1_000, 400


@pytest.mark.parametrize(
    ("batches", "bases"),
    [
        ([(0, 5, 1, THIRD), (5, 5, 2, THIRD), (10, 5, 3, THIRD), (15, 5, 4, THIRD)], [0, 0, 0, 15]),
        ([(0, 5, 1, THIRD), (7, 5, 2, THIRD), (12, 1, 3, THIRD)], [0, 7, 7]),
        ([(0, 5, 1, FULL), (5, 5, 1, THIRD), (10, 5, 2, THIRD)], [0, 0, 10]),
        ([(0, 5, 1, FULL), (6, 5, 1, THIRD)], [0, 6]),
    ],
    ids=["full", "a gap", "the rest of a batch", "a gap and the same time"],
)
def test_batches_of_a_server_are_placed_as_it_rolls(
    batches: list[tuple[int, int, int, int]], bases: list[int]
) -> None:
    placed, tail = place_stored(Tail(0), stored(*batches), STORED, is_end=False)
    assert [batch.base for batch in placed] == bases
    first, count, ts_us, _ = batches[-1]
    assert (tail.next_seq, tail.last_us) == (first + count, ts_us)


def test_a_full_segment_is_sealed_at_once_only_if_its_last_batch_is_whole() -> None:
    batches = stored((0, 5, 1, FULL))
    _, whole = place_stored(Tail(0), batches, STORED, is_end=True)
    _, cut = place_stored(Tail(0), batches, STORED, is_end=False)
    assert whole.active == ActiveSegment(5)
    assert cut.active == ActiveSegment(0, FULL, 1_000)


@given(tails(), SIZES, policies(), st.integers(1, 99), st.integers(0, 30))
def test_a_copy_of_appended_batches_has_the_servers_segments_however_it_is_divided(
    tail: Tail, sizes: list[int], policy: TopicPolicy, now_us: int, at: int
) -> None:
    if policy.profile == "v8":
        return
    appended, after = lay_out(tail, array(sizes), policy, now_us)
    first, between = place_stored(tail, appended[:at], policy, is_end=True)
    rest, end = place_stored(between, appended[at:], policy, is_end=True)
    if not any(before.ts_us == later.ts_us for before, later in pairwise(appended)):
        assert [batch.base for batch in first + rest] == [batch.base for batch in appended]
        assert end.next_seq == after.next_seq
