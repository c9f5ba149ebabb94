"""MaxAge: a scan from the lowest sequence that removes messages up to the first young one."""

from __future__ import annotations

import pytest

from retention.core.policy import Policy
from tests.support.rule_cases import Case, check

FIFTY = Policy(max_age_ns=50)
PER_SUBJECT = Policy(max_age_ns=50, max_msgs_per_subject=1)
TTL = Policy(max_age_ns=50, allow_msg_ttl=True)
CASES = {
    "a message of exactly that age goes": Case(FIFTY, "a@49 a@50 a@51", "max_age max_age -"),
    "an old message behind a young one stays": Case(FIFTY, "a@0 a@90 a@0 a@95", "max_age - - -"),
    "a young message at the head keeps everything": Case(FIFTY, "a@90 a@0 a@0", "- - -"),
    "never is not removed, and does not stop the scan": Case(
        FIFTY, "a@0! a@10 a@50 a@51", "- max_age max_age -"
    ),
    "a young message that is never stops it": Case(FIFTY, "a@0 a@90! a@0", "max_age - -"),
    "a young message that another rule takes does not stop it": Case(
        PER_SUBJECT, "b@0 a@90 c@0 a@95", "max_age max_msgs_per_subject max_age -"
    ),
    "a young message that its deadline takes later stops it": Case(
        TTL, "a@0 a@90~95 a@0", "max_age msg_ttl -"
    ),
    "what the scan does not reach goes by its own deadline": Case(
        TTL, "a@90 a@0~95 a@0~200", "- msg_ttl -"
    ),
    "what the scan reaches goes by age, whatever its deadline": Case(
        TTL, "a@0~95 a@0~200 a@90", "max_age max_age -"
    ),
    "head trims go before it": Case(
        Policy(max_age_ns=50, max_msgs=2), "a@90 a@0 a@95", "max_msgs max_age -"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_scan_ends_at_the_first_young_message(case: Case) -> None:
    check(case)
