"""Limits lowered since the last pass, from records of the run history and a policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retention.core.policy import Policy
from retention.core.topic_policy import TopicPolicy
from retention.plan.lowered import LimitChange, lowered_since

BEFORE = Policy(max_age_ns=30, max_msgs=100, max_bytes=1000)
TOPIC = Policy(topic=TopicPolicy(1, 2**20, 2**20, message_expiry_us=50))


@pytest.mark.parametrize(
    ("before", "now", "changes"),
    [
        (BEFORE, BEFORE, []),
        (BEFORE, replace(BEFORE, max_age_ns=31, max_msgs=None), []),
        (BEFORE, replace(BEFORE, max_age_ns=29), [LimitChange("max_age", 30, 29, "ns")]),
        (
            BEFORE,
            replace(BEFORE, max_msgs_per_subject=5),
            [LimitChange("max_msgs_per_subject", None, 5, "messages")],
        ),
        # Head limits remove nothing under `discard: new`, and begin to remove without it.
        (BEFORE, replace(BEFORE, max_msgs=1, discard="new"), []),
        (
            replace(BEFORE, discard="new"),
            BEFORE,
            [
                LimitChange("max_msgs", None, 100, "messages"),
                LimitChange("max_bytes", None, 1000, "bytes"),
            ],
        ),
        (
            TOPIC,
            Policy(topic=TopicPolicy(1, 2**20, 2**20, message_expiry_us=49, max_topic_size=2**30)),
            [
                LimitChange("message_expiry", 50, 49, "us"),
                LimitChange("max_topic_size", None, 2**30, "bytes"),
            ],
        ),
        (TOPIC, TOPIC, []),
        # A topic replaced a stream.
        (BEFORE, TOPIC, [LimitChange("message_expiry", None, 50, "us")]),
    ],
)
def test_limits_are_compared_as_far_as_they_take_messages(
    before: Policy, now: Policy, changes: list[LimitChange]
) -> None:
    assert lowered_since(before.as_json(), now) == tuple(changes)


def test_without_an_earlier_pass_nothing_is_compared() -> None:
    assert lowered_since(None, BEFORE) == ()
