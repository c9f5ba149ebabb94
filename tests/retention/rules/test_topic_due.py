"""The next instant at which something of a topic is due: nothing goes before it, and it is of use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from retention.rules.iggy import topic_pass
from retention.rules.topic_due import next_expiry
from retention.rules.topic_segments import TopicSegments
from retention.topic_policy import Profile, TopicPolicy
from tests.retention.rules.test_iggy import policies, topics

LATEST_US = 40
AGED = TopicPolicy(partitions=1, segment_size=1, max_message_size=1, message_expiry_us=5)
barriers = st.dictionaries(st.integers(0, 2), st.integers(0, 9))


@given(topics(), policies(), barriers, st.booleans(), st.integers(0, 20))
def test_nothing_goes_before_it(
    segments: TopicSegments,
    policy: TopicPolicy,
    held: dict[int, int],
    respects: bool,
    now_us: int,
) -> None:
    policy = replace(policy, respect_consumer_offsets=respects)
    assume(not topic_pass(segments, policy, now_us, held).fates.any())
    expiry = next_expiry(segments, policy, held)
    until = LATEST_US if expiry is None else min(expiry, LATEST_US)
    for later in range(now_us, until):
        assert not topic_pass(segments, policy, later, held).fates.any()


def of_one_each(*times: int) -> TopicSegments:
    """Segments of one message each, of which only the last one is active."""
    newest, start = np.array(times), np.arange(len(times))
    ones = np.ones(len(times), dtype=np.int64)
    sealed = start < len(times) - 1
    return TopicSegments(0 * ones, start, start, newest, newest, newest, ones, sealed)


@pytest.mark.parametrize(
    ("times", "profile", "held", "due"),
    [
        ((20, 10, 1), "modern", {}, 25),
        ((20, 10, 1), "v8", {}, 15),
        ((20, 10, 1), "v8", {0: 0}, 25),
        ((0, 10, 1), "v8", {}, 15),
        ((0, 10, 1), "modern", {}, None),
        ((20, 10, 1), "modern", {0: -1}, None),
        ((20,), "modern", {}, None),
    ],
)
def test_it_is_when_the_first_segment_that_may_go_expires(
    times: tuple[int, ...], profile: Profile, held: dict[int, int], due: int | None
) -> None:
    segments, policy = of_one_each(*times), replace(AGED, profile=profile)
    assert next_expiry(segments, policy, held) == due
    if due is not None:
        assert topic_pass(segments, policy, due, held).fates.any()


def test_time_alone_takes_nothing_where_nothing_expires() -> None:
    never = replace(AGED, message_expiry_us=None)
    assert next_expiry(of_one_each(1, 2, 3), never, {}) is None
