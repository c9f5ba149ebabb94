"""Negative cases: former defects of servers with topics, and the refusal of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from retention.config.topic import TopicConfig
from retention.config.topic_settings import ServerDefaults
from retention.config.topic_stream import stream_of_topic
from retention.core.iggy_units import parse_expiry, parse_topic_size
from retention.errors import UsageError
from retention.rules.iggy.evaluate import topic_pass
from retention.rules.iggy.segments import STAYS
from tests.conformance.test_topic_rules import DERIVED, segments

NOW_US = 1_800_000_000_000_000
SECOND_US = 1_000_000
OLD_LIMIT_S = 2**32 // 1_000 + 1
"""An expiry of 49.7 days, in seconds; in milliseconds it exceeds 32 bits."""


def gone(age_us: int, **said: Any) -> bool:
    """Whether a sealed segment of that age is removed."""
    topic = TopicConfig(name="t", **said)
    policy = stream_of_topic(topic, topic.settings(ServerDefaults())).of.policy()
    then = NOW_US - age_us
    stored = segments({0: [(0, 9, then, then, then, 100, 1), (10, 9, 0, 0, 0, 0, 0)]})
    return bool(np.any(topic_pass(stored, policy, NOW_US, {}).fates != STAYS))


@pytest.mark.parametrize("case", [one for one in DERIVED if one["op"] == "legacy_expiry"])
def test_an_expiry_is_neither_too_short_nor_wrapped(case: dict[str, Any]) -> None:
    seconds, once = case["seconds"], case["effective_us"]
    expiry_us = parse_expiry(f"{seconds}s")
    assert expiry_us == seconds * SECOND_US != once
    assert not gone(once, message_expiry=f"{seconds}s")
    assert not gone(expiry_us - 1, message_expiry=f"{seconds}s")
    assert gone(expiry_us, message_expiry=f"{seconds}s")


@pytest.mark.parametrize("seconds", [OLD_LIMIT_S, 2**32 // SECOND_US + 1, 2**32 - 1])
def test_no_expiry_overflows_32_bits(seconds: int) -> None:
    assert not gone(min(seconds * SECOND_US - 1, NOW_US - 1), message_expiry=f"{seconds}s")


@pytest.mark.parametrize("expiry_us", [2**64 - 2, 2**63, 2**64 - NOW_US])
def test_an_expiry_that_no_clock_reaches_never_comes(expiry_us: int) -> None:
    assert not gone(NOW_US - 1, message_expiry=expiry_us)


def test_a_cap_of_0_is_refused_and_a_default_is_no_cap_of_0() -> None:
    [case] = [one for one in DERIVED if one.get("cap") == 0 and one["op"] == "size_v8"]
    with pytest.raises(UsageError, match="empties the topic"):
        parse_topic_size(case["cap"])
    for profile in ("modern", "v8"):
        for cap in ("server_default", "default", "unlimited"):
            assert not gone(NOW_US - 1, max_topic_size=cap, profile=profile)
        assert not gone(NOW_US - 1, profile=profile)


def test_a_segment_without_a_time_does_not_expire() -> None:
    for profile in ("modern", "v8"):
        assert not gone(NOW_US, message_expiry="1s", profile=profile)
