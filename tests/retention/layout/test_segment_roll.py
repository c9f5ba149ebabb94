from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.layout.segment_roll import (
    ActiveSegment,
    RollRule,
    SegmentPart,
    roll,
    taken_whole,
)


def bases(
    active: ActiveSegment | None,
    messages: list[tuple[int, int]],
    rule: RollRule,
    first_seq: int = 1,
) -> list[int]:
    """The segment of each (size, time) by `roll`."""
    sizes, times = np.array(messages, dtype=np.int64).reshape(-1, 2).T
    seqs = np.arange(first_seq, first_seq + len(messages))
    pieces = list(roll(active, seqs, sizes, times, rule))
    assert [piece.end for piece in pieces[:-1]] == [piece.start for piece in pieces[1:]]
    return [piece.active.base for piece in pieces for _ in range(piece.start, piece.end)]


def bases_one_by_one(
    active: ActiveSegment | None, messages: list[tuple[int, int]], rule: RollRule, first_seq: int
) -> list[int]:
    found = []
    base, held, first = (
        (active.base, active.bytes, active.first_ts_ns) if active else (None, 0, None)
    )
    for seq, (size, ts_ns) in enumerate(messages, first_seq):
        full = first is not None and (
            held >= rule.segment_size
            or (rule.segment_span_ns is not None and ts_ns - first >= rule.segment_span_ns)
        )
        if base is None or full:
            base, held, first = seq, 0, None
        held, first = held + size, ts_ns if first is None else first
        found.append(base)
    return found


def test_a_new_stream_opens_its_first_segment_at_its_first_sequence() -> None:
    assert bases(None, [(10, 0)], RollRule(100), first_seq=7) == [7]


def test_the_message_that_reaches_the_size_still_belongs_to_the_segment() -> None:
    assert bases(None, [(60, 0), (60, 0), (60, 0)], RollRule(100)) == [1, 1, 3]


def test_exactly_the_size_is_full() -> None:
    assert bases(None, [(50, 0), (50, 0), (1, 0)], RollRule(100)) == [1, 1, 3]


def test_bytes_that_are_there_already_count() -> None:
    assert bases(ActiveSegment(3, 99, 0), [(1, 0), (1, 0)], RollRule(100), first_seq=9) == [3, 10]


def test_a_full_active_segment_takes_no_more() -> None:
    assert bases(ActiveSegment(3, 100, 0), [(1, 0)], RollRule(100), first_seq=9) == [9]


def test_an_emptied_active_segment_is_gone_on_with() -> None:
    assert bases(ActiveSegment(3), [(1, 0), (1, 0)], RollRule(100, 5), first_seq=9) == [3, 3]


def test_a_message_one_span_younger_opens_the_next_segment() -> None:
    assert bases(None, [(1, 0), (1, 9), (1, 10), (1, 19), (1, 20)], RollRule(100, 10)) == [
        1,
        1,
        3,
        3,
        5,
    ]


def test_an_older_message_behind_a_younger_one_stays_in_the_segment() -> None:
    assert bases(None, [(1, 100), (1, 0), (1, 109), (1, 110)], RollRule(100, 10)) == [1, 1, 1, 4]


def test_a_single_message_above_the_size_fills_a_segment_alone() -> None:
    assert bases(None, [(500, 0), (500, 0)], RollRule(100)) == [1, 2]


@given(
    messages=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), max_size=40),
    size=st.integers(1, 120),
    span=st.none() | st.integers(1, 40),
    active=st.none()
    | st.builds(ActiveSegment, st.just(2))
    | st.builds(ActiveSegment, st.just(2), st.integers(1, 130), st.integers(0, 60)),
)
def test_segments_are_those_of_a_message_by_message_roll(
    messages: list[tuple[int, int]], size: int, span: int | None, active: ActiveSegment | None
) -> None:
    rule = RollRule(size, span)
    assert bases(active, messages, rule, 5) == bases_one_by_one(active, messages, rule, 5)


@given(
    messages=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), min_size=1, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
)
def test_batches_make_no_difference_to_where_segments_begin(
    messages: list[tuple[int, int]], cuts: list[int]
) -> None:
    rule = RollRule(90, 30)
    active: ActiveSegment | None = None
    found: list[int] = []
    for start, end in pairwise(
        [0, *sorted(min(cut, len(messages)) for cut in cuts), len(messages)]
    ):
        sizes, times = np.array(messages[start:end], dtype=np.int64).reshape(-1, 2).T
        for piece in roll(active, np.arange(start + 1, end + 1), sizes, times, rule):
            active = piece.active
            found += [active.base] * (piece.end - piece.start)
    assert found == bases(None, messages, rule)


@pytest.mark.parametrize("count", [4_095, 4_096, 4_097, 20_000])
def test_a_span_that_ends_far_away_is_found(count: int) -> None:
    messages = [(1, 0)] * count + [(1, 10)]
    assert bases(None, messages, RollRule(10**9, 10))[-2:] == [1, count + 1]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4)), min_size=1, max_size=5),
    st.integers(0, 60),
    st.sampled_from([None, 0, 3]),
    st.sampled_from([None, 6]),
)
def test_messages_are_taken_whole_only_where_each_of_them_would_go_there(
    messages: list[tuple[int, int]], held: int, first_ts_ns: int | None, span: int | None
) -> None:
    sizes, steps = np.array(messages, dtype=np.int64).T
    times = np.cumsum(steps) + 3
    rule, active = RollRule(100, span), ActiveSegment(1, held, first_ts_ns)
    whole = taken_whole(active, int(sizes.sum()), int(times[0]), int(times[-1]), rule)
    pieces = list(roll(active, np.arange(len(sizes)), sizes, times, rule))
    last = pieces[-1].active
    is_full = last.bytes >= 100 or (
        span is not None and times[-1] - (last.first_ts_ns or 0) >= span
    )
    assert (whole is not None) == (len(pieces) == 1 and last.base == 1 and not is_full)
    assert whole is None or pieces == [SegmentPart(whole, 0, len(sizes))]
