"""Verdicts on rows of a scan and of a rule after it, whether the scan reaches the rows or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.rules import MAX_AGE, MSG_TTL, RULES
from retention.rules.row_verdicts import STAYS, Question, judge, settled


@dataclass
class Rule:
    """A stub of a rule that takes some rows, and of its scan, which ends at others."""

    rule: str
    taken: list[bool]
    ends: list[bool] | None = None

    def takes(self, _: pa.Table) -> np.ndarray:
        return np.array(self.taken)

    def stops(self, _: pa.Table) -> np.ndarray | None:
        return None if self.ends is None else np.array(self.ends)


@pytest.mark.parametrize(
    ("reached", "removed_by"),
    [(True, [MAX_AGE, MAX_AGE, None, MSG_TTL]), (False, [None, MSG_TTL, None, MSG_TTL])],
)
def test_a_later_rule_removes_what_a_scan_does_not_reach(
    reached: bool, removed_by: list[str | None]
) -> None:
    age = Rule(MAX_AGE, [True, True, False, True], [False, False, True, False])
    due = Rule(MSG_TTL, [False, True, False, True])
    parts: Any = (age, due)
    verdicts, until = judge(pa.table({"seq": [1, 2, 3, 4]}), Question(0, parts))
    final = settled(verdicts, reached=reached).tolist()
    assert [None if verdict == STAYS else RULES[verdict] for verdict in final] == removed_by
    assert until == 2
