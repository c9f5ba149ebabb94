"""MaxAge with `expiry: each`: every old message is removed, anywhere."""

from __future__ import annotations

import pytest

from retention.core.policy import Policy
from tests.support.rule_cases import Case, check

EACH = Policy(max_age_ns=50, expiry="each")
TTL = Policy(max_age_ns=50, expiry="each", allow_msg_ttl=True)
CASES = {
    "a message of exactly that age goes": Case(EACH, "a@49 a@50 a@51", "max_age max_age -"),
    "an old message behind a young one goes": Case(
        EACH, "a@0 a@90 a@0 a@95", "max_age - max_age -"
    ),
    "a young message at the head keeps itself alone": Case(
        EACH, "a@90 a@0 a@0", "- max_age max_age"
    ),
    "never stays, wherever it lies": Case(EACH, "a@0! a@90 a@0 a@0!", "- - max_age -"),
    "what is never alone stays": Case(EACH, "a@0! a@0!", "- -"),
    "it comes behind the limit per subject": Case(
        Policy(max_age_ns=50, expiry="each", max_msgs_per_subject=1),
        "b@0 a@0 a@90 c@0",
        "max_age max_msgs_per_subject - max_age",
    ),
    "it comes behind head trims": Case(
        Policy(max_age_ns=50, expiry="each", max_msgs=2), "a@0 a@90 a@0", "max_msgs - max_age"
    ),
    "it comes before deadlines": Case(TTL, "a@90 a@0~95 a@90~95", "- max_age msg_ttl"),
    "a message without the age to go stays until its deadline": Case(
        TTL, "a@90~200 a@90~100", "- msg_ttl"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_old_message_goes(case: Case) -> None:
    check(case)
