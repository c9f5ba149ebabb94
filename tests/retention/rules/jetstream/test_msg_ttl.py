"""Per-message TTL: every message past its deadline is removed, anywhere."""

from __future__ import annotations

import pytest

from retention.core.policy import Policy
from tests.support.rule_cases import Case, check

TTL = Policy(allow_msg_ttl=True)
CASES = {
    "a message goes at its deadline": Case(TTL, "a~99 a~100 a~101", "msg_ttl msg_ttl -"),
    "it goes behind one that stays": Case(TTL, "a a~95 a~200 a~95", "- msg_ttl - msg_ttl"),
    "a message without a TTL stays": Case(TTL, "a@0 a@0", "- -"),
    "never stays": Case(TTL, "a@0! a@0~95", "- msg_ttl"),
    "switched off, no deadline counts": Case(Policy(max_msgs=3), "a~1 a~1", "- -"),
    "it comes behind the limit per subject": Case(
        Policy(allow_msg_ttl=True, max_msgs_per_subject=1),
        "a~95 a~95 b",
        "max_msgs_per_subject msg_ttl -",
    ),
    "messages past their deadline count for the limits before": Case(
        Policy(allow_msg_ttl=True, max_msgs=2), "a a~95 a~95", "max_msgs msg_ttl msg_ttl"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_message_goes_at_its_deadline(case: Case) -> None:
    check(case)
