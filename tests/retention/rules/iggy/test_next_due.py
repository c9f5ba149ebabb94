"""The next due instant of a topic: nothing happens before it, and it is not trivially early."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retention.core.topic_policy import Profile, TopicPolicy
from retention.layout.topic_segment_roll import aged_mask
from retention.rules.iggy.evaluate import topic_pass
from retention.rules.iggy.next_due import next_due
from retention.rules.iggy.segments import TopicSegments, with_sealed
from tests.retention.rules.iggy.test_evaluate import policies, topics

LATEST_US = 40
AGED = TopicPolicy(partitions=1, segment_size=1, max_message_size=1, message_expiry_us=5)


def takes(segments: TopicSegments, policy: TopicPolicy, now_us: int) -> bool:
    """Whether a pass would seal a segment, or remove one without regard to offsets."""
    aged = aged_mask(segments.first_us, policy, now_us) & ~segments.sealed
    seen = with_sealed(segments, aged)
    return bool(aged.any() or topic_pass(seen, policy, now_us, {}).fates.any())


@given(topics(), policies(), st.none() | st.integers(1, 9), st.integers(0, 20))
def test_nothing_happens_before_it(
    segments: TopicSegments, policy: TopicPolicy, roll_after_us: int | None, now_us: int
) -> None:
    policy = replace(policy, roll_after_us=roll_after_us)
    assume(not takes(segments, policy, now_us))
    due = next_due(segments, policy)
    until = LATEST_US if due is None else min(due, LATEST_US)
    for later in range(now_us, until):
        assert not takes(segments, policy, later)


def of_one_each(*times: int) -> TopicSegments:
    """Segments of one message each; only the last one is active."""
    newest, start = np.array(times), np.arange(len(times))
    ones = np.ones(len(times), dtype=np.int64)
    sealed = start < len(times) - 1
    return TopicSegments(0 * ones, start, start, newest, newest, newest, ones, sealed)


@pytest.mark.parametrize(
    ("times", "profile", "due"),
    [
        ((20, 10, 1), "modern", 25),
        ((20, 10, 1), "v8", 15),
        ((0, 10, 1), "v8", 15),
        ((0, 10, 1), "modern", None),
        ((20,), "modern", None),
    ],
)
def test_it_is_when_the_first_segment_that_may_go_expires(
    times: tuple[int, ...], profile: Profile, due: int | None
) -> None:
    segments, policy = of_one_each(*times), replace(AGED, profile=profile)
    assert next_due(segments, policy) == due
    if due is not None:
        assert topic_pass(segments, policy, due, {}).fates.any()


def test_it_is_when_the_active_segment_is_sealed() -> None:
    policy = replace(AGED, message_expiry_us=None, roll_after_us=3)
    assert next_due(of_one_each(20, 10), policy) == 13
    assert takes(of_one_each(20, 10), policy, 13)


def test_time_alone_does_nothing_where_nothing_expires() -> None:
    never = replace(AGED, message_expiry_us=None)
    assert next_due(of_one_each(1, 2, 3), never) is None
