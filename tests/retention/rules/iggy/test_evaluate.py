"""Laws of passes over topics, on small worlds without a server's result."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.topic_policy import Profile, TopicPolicy
from retention.rules.iggy.delete_segments import requested_fates
from retention.rules.iggy.evaluate import barrier_of, topic_pass
from retention.rules.iggy.segments import BY_AGE, BY_SIZE, STAYS, TopicSegments
from retention.rules.iggy.v09 import budget_of

PROFILES: tuple[Profile, ...] = ("modern", "v8")


@st.composite
def topics(draw: st.DrawFn) -> TopicSegments:
    rows = []
    for partition in range(draw(st.integers(1, 3))):
        start, count = draw(st.integers(0, 9)), draw(st.integers(1, 6))
        for number in range(count):
            length = draw(st.integers(1, 3))
            last, highest = draw(st.integers(0, 9)), draw(st.integers(0, 9))
            size = draw(st.integers(1, 9))
            rows.append(
                (
                    partition,
                    start,
                    start + length - 1,
                    last,
                    last,
                    max(last, highest),
                    size,
                    number < count - 1,
                )
            )
            start += length
    partition, begins, end, first, last, highest, size, sealed = np.array(rows, dtype=np.int64).T
    return TopicSegments(partition, begins, end, first, last, highest, size, sealed.astype(bool))


@st.composite
def policies(draw: st.DrawFn) -> TopicPolicy:
    return TopicPolicy(
        partitions=3,
        segment_size=draw(st.integers(0, 6)),
        max_message_size=draw(st.integers(0, 3)),
        profile=draw(st.sampled_from(PROFILES)),
        message_expiry_us=draw(st.none() | st.integers(1, 9) | st.just(2**64 - 2)),
        max_topic_size=draw(st.none() | st.integers(1, 60) | st.just(2**64 - 2)),
    )


barriers = st.dictionaries(st.integers(0, 2), st.integers(0, 20))
instants = st.integers(0, 20)


def kept(segments: TopicSegments, stays: np.ndarray) -> TopicSegments:
    columns = {one.name: getattr(segments, one.name)[stays] for one in dataclasses.fields(segments)}
    return TopicSegments(**columns)


@given(topics(), policies(), instants, barriers)
def test_the_newest_segment_stays_and_none_that_somebody_has_not_read(
    segments: TopicSegments, policy: TopicPolicy, now_us: int, held: dict[int, int]
) -> None:
    gone = topic_pass(segments, policy, now_us, held).fates != STAYS
    for partition, part in segments.parts():
        assert not gone[part][-1]
        if partition in held:
            assert (segments.end[part][gone[part]] <= held[partition]).all()


@given(topics(), policies(), instants, barriers)
def test_a_second_pass_at_the_same_instant_removes_nothing(
    segments: TopicSegments, policy: TopicPolicy, now_us: int, held: dict[int, int]
) -> None:
    for limits in settling(policy):
        left = kept(segments, topic_pass(segments, limits, now_us, held).fates == STAYS)
        assert (topic_pass(left, limits, now_us, held).fates == STAYS).all()


def settling(policy: TopicPolicy) -> list[TopicPolicy]:
    """Each limit alone under current rules: a segment removed by size may have blocked later ones."""
    if policy.profile == "v8":
        return [policy]
    without = {"message_expiry_us": None}, {"max_topic_size": None}
    return [dataclasses.replace(policy, **one) for one in without]  # type: ignore[arg-type]


def test_today_what_size_uncovers_goes_with_the_next_pass() -> None:
    """The first segment is young and beyond the size; the second is expired, and was blocked by it."""
    numbers = np.arange(3)
    times, ones = np.array([9, 1, 9]), np.ones(3, dtype=np.int64)
    segments = TopicSegments(
        0 * numbers, numbers, numbers, times, times, times, ones, numbers < np.array(2)
    )
    policy = TopicPolicy(1, 0, 1, message_expiry_us=5, max_topic_size=1)
    first = topic_pass(segments, policy, 9, {}).fates
    assert first.tolist() == [BY_SIZE, STAYS, STAYS]
    assert topic_pass(kept(segments, first == STAYS), policy, 9, {}).fates.tolist() == [
        BY_AGE,
        STAYS,
    ]


@given(topics(), policies(), instants, barriers)
def test_today_only_the_oldest_go(
    segments: TopicSegments, policy: TopicPolicy, now_us: int, held: dict[int, int]
) -> None:
    modern = dataclasses.replace(policy, profile="modern")
    gone = topic_pass(segments, modern, now_us, held).fates != STAYS
    for _, part in segments.parts():
        assert (np.diff(gone[part].astype(int)) <= 0).all()


@given(topics(), policies(), instants, barriers)
def test_what_is_held_stays_and_would_go_if_all_had_read_everything(
    segments: TopicSegments, policy: TopicPolicy, now_us: int, held: dict[int, int]
) -> None:
    found = topic_pass(segments, policy, now_us, held)
    free = topic_pass(segments, policy, now_us, {})
    assert (found.fates[found.held != STAYS] == STAYS).all()
    assert (free.fates[found.held != STAYS] == found.held[found.held != STAYS]).all()
    assert (free.held == STAYS).all()


@given(topics(), policies(), instants, barriers)
def test_without_respect_for_consumers_nothing_is_held(
    segments: TopicSegments, policy: TopicPolicy, now_us: int, held: dict[int, int]
) -> None:
    careless = dataclasses.replace(policy, respect_consumer_offsets=False)
    found = topic_pass(segments, careless, now_us, held)
    assert (found.fates == topic_pass(segments, policy, now_us, {}).fates).all()


@given(topics(), policies(), instants)
def test_modern_goes_by_the_rules_one_segment_at_a_time(
    segments: TopicSegments, policy: TopicPolicy, now_us: int
) -> None:
    modern = dataclasses.replace(policy, profile="modern")
    fates = topic_pass(segments, modern, now_us, {}).fates
    for _, part in segments.parts():
        assert fates[part].tolist() == plainly(segments, part, modern, now_us)


def plainly(segments: TopicSegments, part: slice, policy: TopicPolicy, now_us: int) -> list[int]:
    """A plain model, partition by partition."""
    told, expiring, budget = [], True, budget_of(policy)
    numbers = range(part.start, part.stop)
    for at in numbers:
        is_last = at == part.stop - 1
        sealed_bytes = sum(int(segments.bytes[one]) for one in numbers if at <= one < part.stop - 1)
        age, newest = policy.message_expiry_us, int(segments.max_us[at])
        expiring = expiring and age is not None and newest != 0 and newest + age <= now_us
        if is_last:
            told.append(STAYS)
        elif expiring:
            told.append(BY_AGE)
        else:
            told.append(BY_SIZE if budget is not None and sealed_bytes > budget else STAYS)
    return told


def test_the_slowest_is_the_barrier() -> None:
    assert barrier_of([3, 0, 7]) == 0
    assert barrier_of([]) is None


@pytest.mark.parametrize("profile", PROFILES)
def test_an_instant_before_every_message_drops_nothing(profile: Profile) -> None:
    column = np.array([5, 6], dtype=np.int64)
    segments = TopicSegments(
        column * 0, column, column, column, column, column, column, column == 5
    )
    policy = TopicPolicy(1, 1, 1, profile, message_expiry_us=1)
    assert (topic_pass(segments, policy, 4, {}).fates == STAYS).all()


@given(topics(), st.dictionaries(st.integers(0, 2), st.integers(-1, 20)), barriers)
def test_what_is_asked_for_goes_from_the_oldest_on_and_nothing_that_is_held(
    segments: TopicSegments, asked: dict[int, int], held: dict[int, int]
) -> None:
    gone = requested_fates(segments, asked, held) != STAYS
    for partition, part in segments.parts():
        end, goes = segments.end[part], gone[part]
        reach = min(asked.get(partition, -1), held.get(partition, 99))
        assert (goes == (segments.may_go(part) & (end <= reach))).all()


@given(topics(), policies(), st.integers(0, 20), barriers, barriers)
def test_a_pass_takes_what_was_asked_for_beside_its_own_and_in_08_its_own_alone(
    segments: TopicSegments,
    policy: TopicPolicy,
    now_us: int,
    held: dict[int, int],
    asked: dict[int, int],
) -> None:
    own = topic_pass(segments, policy, now_us, held).fates
    fates = topic_pass(segments, policy, now_us, held, asked).fates
    assert (fates[own != STAYS] == own[own != STAYS]).all()
    beside = requested_fates(segments, asked, held) != STAYS
    expected = own != STAYS if policy.profile == "v8" else (own != STAYS) | beside
    assert ((fates != STAYS) == expected).all()
