"""MaxMsgs: the lowest sequences are removed while there are more messages than the limit."""

from __future__ import annotations

import pytest

from retention.core.policy import Policy
from tests.support.rule_cases import Case, check

CASES = {
    "as many as the limit stay": Case(Policy(max_msgs=3), "a b c", "- - -"),
    "one more takes the lowest": Case(Policy(max_msgs=3), "a b c d", "max_msgs - - -"),
    "a limit of 0 takes everything": Case(Policy(max_msgs=0), "a b", "max_msgs max_msgs"),
    "times do not matter": Case(Policy(max_msgs=1), "a@99 a@1", "max_msgs -"),
    "sizes do not matter": Case(Policy(max_msgs=1), "a*1 a*9", "max_msgs -"),
    "never spares nobody": Case(Policy(max_msgs=1), "a! a", "max_msgs -"),
    "with discard new it removes nothing": Case(
        Policy(max_msgs=1, discard="new"), "a b c", "- - -"
    ),
    "it comes first, so that a subject may lose its only message": Case(
        Policy(max_msgs=5, max_msgs_per_subject=2),
        "b a a a a a",
        "max_msgs max_msgs_per_subject max_msgs_per_subject max_msgs_per_subject - -",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_lowest_sequences_go(case: Case) -> None:
    check(case)
