from __future__ import annotations

import pyarrow as pa

from retention.rules import MAX_AGE, MAX_MSGS, MSG_TTL, RULES
from retention.rules.jetstream.consumer_protection import settled
from retention.rules.row_verdicts import STAYS, provisional
from retention.schemas.plan import HELD_RANGES


def test_what_age_would_take_is_held_only_where_its_scan_comes() -> None:
    count, age, ttl = (RULES.index(rule) for rule in (MAX_MSGS, MAX_AGE, MSG_TTL))
    verdicts = [count, provisional(age, STAYS), provisional(age, ttl)]
    columns = [[-1] * 3, verdicts, [1, 2, 3], [1, 2, 3], [1] * 3, [5] * 3, [0] * 3]
    ranges = pa.table(columns, schema=HELD_RANGES)

    def rules(*, reached: bool) -> list[str]:
        return [RULES[rule] for rule in settled(ranges, reached=reached)["rule"].to_pylist()]

    assert rules(reached=True) == [MAX_MSGS, MAX_AGE, MAX_AGE]
    assert rules(reached=False) == [MAX_MSGS, MSG_TTL]
