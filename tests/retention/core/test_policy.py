from __future__ import annotations

import json
from typing import Any

import pytest

from retention.core.policy import UNLIMITED, ConsumerProtection, Policy, describe, policy_from_json
from retention.core.units import DAY, HOUR


def test_a_policy_is_json_in_the_order_of_its_names() -> None:
    values = Policy(max_age_ns=1, discard="new", whole_segments=True).as_json()
    assert list(values) == sorted(values)
    assert json.loads(json.dumps(values)) == values
    assert Policy(**values) == Policy(max_age_ns=1, discard="new", whole_segments=True)


@pytest.mark.parametrize(
    "hold", [None, ConsumerProtection(), ConsumerProtection(("a", "b"), "warn", 1, 2)]
)
def test_a_policy_comes_back_from_json(hold: ConsumerProtection | None) -> None:
    policy = Policy(max_msgs=1, hold=hold)
    assert policy_from_json(json.loads(json.dumps(policy.as_json()))) == policy
    assert ("hold" in policy.as_json()) == (hold is not None)


def test_which_old_messages_go_is_in_the_json_only_if_it_is_not_the_servers_way() -> None:
    assert "expiry" not in Policy(max_age_ns=1).as_json()
    each = Policy(max_age_ns=1, expiry="each")
    assert each.as_json()["expiry"] == "each"
    assert policy_from_json(json.loads(json.dumps(each.as_json()))) == each


def test_age_and_count_are_said_together() -> None:
    assert describe(Policy(max_age_ns=30 * DAY, max_msgs=1_000_000)) == [
        "a message is removed 30 days after it was stored, or when 1,000,000 newer ones exist",
        "age removes messages from the lowest sequence on and stops at the first young one:"
        " old ones after it are kept as long as it is (`expiry: each` would remove them too)",
    ]


def test_without_limits_nothing_goes() -> None:
    assert describe(UNLIMITED) == ["no limit removes a message"]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_msgs": 1}, "when 1 newer one exists"),
        ({"max_bytes": 10 * 2**30}, "when it and everything newer exceed 10 GiB"),
        ({"max_bytes": 1_234_567}, "exceed 1,234,567 bytes"),
        ({"max_msgs_per_subject": 5}, "when 5 newer ones on its subject exist"),
        ({"max_subjects": 1}, "when 1 other subject has a newer last message than its subject"),
        ({"whole_segments": True, "max_age_ns": DAY}, "a sealed segment is removed whole"),
        ({"max_age_ns": DAY, "expiry": "each"}, "1 day after it was stored, at any position"),
        ({"allow_msg_ttl": True}, "Nats-TTL"),
        ({"subject_delete_marker_ttl_ns": HOUR}, "kept 1 hour"),
        ({"retention": "interest"}, "every consumer that wants it"),
        ({"retention": "interest", "unmatched": "remove"}, "no consumer wants is removed"),
        ({"retention": "workqueue"}, "its consumer has acknowledged it"),
        (
            {"hold": ConsumerProtection(max_age_ns=DAY)},
            "any consumer still needs is kept nevertheless, until",
        ),
        (
            {"hold": ConsumerProtection(("a", "b"), max_bytes=2**30)},
            "a or b still needs is kept nevertheless",
        ),
        (
            {"hold": ConsumerProtection(("a",), "warn")},
            "a pass reports the messages that it removes although a still needs",
        ),
    ],
)
def test_every_rule_has_its_words(limits: dict[str, Any], words: str) -> None:
    assert words in " / ".join(describe(Policy(**limits)))


def test_discard_new_refuses_instead_of_removing() -> None:
    policy = Policy(discard="new", max_msgs=10, max_bytes=1024, max_msgs_per_subject=2)
    removals, refusals = describe(policy)
    assert "newer ones on its subject" in removals
    assert "10 newer" not in removals
    assert refusals.startswith("at 10 messages, or above 1 KiB new messages are refused")
    assert not policy.trims_head
    assert Policy(max_bytes=1).trims_head
