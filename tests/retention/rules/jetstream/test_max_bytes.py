"""MaxBytes: the lowest sequences are removed while there are more bytes than the limit."""

from __future__ import annotations

import pytest

from retention.core.policy import Policy
from tests.support.rule_cases import Case, check

CASES = {
    "as many bytes as the limit stay": Case(Policy(max_bytes=6), "a*1 b*2 c*3", "- - -"),
    "a byte too many takes the lowest": Case(Policy(max_bytes=5), "a*1 b*2 c*3", "max_bytes - -"),
    "a large message at the head is not stepped over": Case(
        Policy(max_bytes=20), "a*4 a*15 a*10 a*6", "max_bytes max_bytes - -"
    ),
    "a message larger than the limit takes everything before it along": Case(
        Policy(max_bytes=5), "a*1 a*9", "max_bytes max_bytes"
    ),
    "what max_msgs has taken is not counted again": Case(
        Policy(max_msgs=3, max_bytes=2), "a b c d", "max_msgs max_bytes - -"
    ),
    "where max_msgs takes more, it takes nothing": Case(
        Policy(max_msgs=1, max_bytes=2), "a b c d", "max_msgs max_msgs max_msgs -"
    ),
    "never spares nobody": Case(Policy(max_bytes=1), "a! a", "max_bytes -"),
    "with discard new it removes nothing": Case(
        Policy(max_bytes=1, discard="new"), "a*9 b*9", "- -"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_lowest_sequences_go(case: Case) -> None:
    check(case)
