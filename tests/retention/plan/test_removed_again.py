"""Repeated removals after an undo: rules with unchanged limits, and ways to keep the messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retention.core.policy import Policy
from retention.core.topic_policy import TopicPolicy
from retention.core.units import DAY
from retention.plan.removed_again import removed_again

AGED = Policy(max_age_ns=30 * DAY, max_msgs=1_000)
TOPIC = Policy(
    topic=TopicPolicy(1, 1 << 20, 1 << 20, message_expiry_us=DAY // 1_000, max_topic_size=1 << 30)
)
REPLAYED = Policy(max_msgs=9, mode="replay")
GUARD = "set `guards: {max_removed_share: 0%}`, which refuses the pass"
CASES: dict[str, tuple[tuple[str, ...], Policy, Policy, str | None]] = {
    "a limit that stands": (
        ("max_age",),
        AGED,
        AGED,
        f"max_age (30d); to keep them, first raise max_age in the configuration, or {GUARD}",
    ),
    "two, one of them raised since": (
        ("max_msgs", "max_age"),
        AGED,
        Policy(max_age_ns=31 * DAY, max_msgs=1_000),
        f"max_msgs (1,000); to keep them, first raise max_msgs in the configuration, or {GUARD}",
    ),
    "a lower one": (
        ("max_age",),
        AGED,
        Policy(max_age_ns=DAY),
        f"max_age (1d); to keep them, first raise max_age in the configuration, or {GUARD}",
    ),
    "all raised": (("max_age",), AGED, Policy(max_age_ns=31 * DAY), None),
    "taken out": (("max_age",), AGED, Policy(), None),
    "full streams that refuse": (("max_msgs",), AGED, Policy(max_msgs=9, discard="new"), None),
    "times of their own": (
        ("msg_ttl",),
        Policy(allow_msg_ttl=True),
        Policy(allow_msg_ttl=True),
        f"msg_ttl (their own TTL); to keep them, first {GUARD}",
    ),
    "released by consumers": (
        ("interest",),
        Policy(retention="interest"),
        Policy(retention="interest"),
        "interest; to keep them, first add a consumer that needs them",
    ),
    "a topic": (
        ("message_expiry", "max_topic_size"),
        TOPIC,
        TOPIC,
        "message_expiry (1d) and max_topic_size (1 GiB); to keep them, first raise message_expiry and max_topic_size "
        f"in the configuration, or {GUARD}",
    ),
    "refused and answered by a replay": (
        ("max_msgs", "refused", "duplicate"),
        REPLAYED,
        REPLAYED,
        "max_msgs (9) and refused and duplicate; to keep them, first raise max_msgs in the configuration, or raise the "
        f"limits that refuse them, or lower duplicate_window, or {GUARD}",
    ),
    "refused by other limits": (("refused",), REPLAYED, replace(REPLAYED, max_age_ns=1), None),
    "another mode": (("max_msgs",), REPLAYED, replace(REPLAYED, mode="update"), None),
    "asked for": (("purge",), AGED, AGED, None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_next_pass_takes_again_what_stands(name: str) -> None:
    rules, then, now, said = CASES[name]
    again = removed_again(rules, then, now)
    assert (again and again.sentence) == (said and f"the next pass removes them again, by {said}")
