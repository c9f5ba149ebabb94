"""Completion of a frame's rows by tasks: times are filled in, converted, or refused by row and column."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from retention.config import StreamConfig
from retention.core.accepted_times import ALL_TIMES, PLAUSIBLE_TIMES, AcceptedTimes
from retention.dialects.arriving_rows import TIME_US, ArrivingRows
from retention.dialects.jetstream import JetStream
from retention.errors import UsageError

NOW = 1_800_000_000_000_000_123


def rows(**columns: Any) -> pa.RecordBatch:
    arrays = {name: pa.array(values) for name, values in columns.items()}
    return pa.RecordBatch.from_arrays([*arrays.values()], names=[*arrays])


def arriving(times: AcceptedTimes = PLAUSIBLE_TIMES) -> ArrivingRows:
    return ArrivingRows(
        JetStream.of(StreamConfig(name="ORDERS", subjects=("orders.>",))), NOW, times
    )


def test_rows_without_a_time_get_the_clocks_and_others_keep_theirs() -> None:
    filled = arriving().filled(rows(subject=["a", "b"], ts_ns=[None, NOW - 1], payload=[b"", b""]))
    assert filled["ts_ns"].to_pylist() == [NOW, NOW - 1]
    filled = arriving().filled(
        rows(subject=["a", "b"], time_us=[None, NOW // 1000], payload=[b"", b""])
    )
    assert filled["ts_ns"].to_pylist() == [NOW, NOW // 1000 * 1000]
    assert arriving().filled(rows(subject=["a"], payload=[b""]))["ts_ns"].to_pylist() == [NOW]


@pytest.mark.parametrize("times", [PLAUSIBLE_TIMES, ALL_TIMES])
def test_a_time_that_64_bits_do_not_hold_is_refused_by_row_and_column(times: AcceptedTimes) -> None:
    given = rows(
        **{
            "subject": ["a", None, "s.b"],
            "payload": [b""] * 3,
            TIME_US: [NOW // 1000, None, 253_402_214_400_000_000],
        }
    )
    with pytest.raises(
        UsageError, match=r"the row with subject 's\.b': time 9999-12-31T00:00:00Z is outside 1677"
    ):
        arriving(times).filled(given)


def test_another_unit_is_refused_unless_any_time_is_taken() -> None:
    given = rows(subject=["s.a"], ts_ns=[NOW // 10**6], payload=[b""])
    with pytest.raises(
        UsageError, match=r"'s\.a': ts_ns 1800000000000 is .* if milliseconds are meant"
    ):
        arriving().filled(given)
    assert arriving(ALL_TIMES).filled(given)["ts_ns"].to_pylist() == [NOW // 10**6]


def test_a_null_payload_and_a_missing_time_are_refused_by_row() -> None:
    given = rows(subject=["s.a", "s.b"], ts_ns=[NOW, NOW], payload=[b"", None])
    with pytest.raises(UsageError, match=r"subject 's\.b': payload is null, .*tombstone=.*where="):
        arriving().filled(given)
    given = rows(subject=["s.a" * 30], ts_ns=pa.array([None], pa.int64()), payload=[b""])
    timed = AcceptedTimes(0, may_be_missing=False)
    with pytest.raises(UsageError, match=r"subject '(s\.a){20}'…: ts_ns is null: --time now"):
        arriving(timed).filled(given)
