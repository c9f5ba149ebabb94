from __future__ import annotations

import pyarrow as pa
import pytest

from retention.core.units import DAY, MICROSECOND
from retention.inspect.time_guess import ColumnBounds, likeliest, time_candidates, unit_of

NOW = 1_790_000_000 * 10**9
INT = pa.int64()


def days(name: str, *spans: tuple[int, int], kind: str = "timestamp") -> ColumnBounds:
    """A column with spans of days before `NOW`, a file each of ten rows."""
    return _bounds(
        name, kind, [tuple((NOW - day * DAY) // MICROSECOND for day in s) for s in spans]
    )


def integers(name: str, *spans: tuple[int, int]) -> ColumnBounds:
    return _bounds(name, "long", list(spans))


def _bounds(name: str, kind: str, spans: list[tuple[int, ...]]) -> ColumnBounds:
    low, high = (pa.array([span[at] for span in spans], INT) for at in (0, 1))
    return ColumnBounds((name,), kind, low, high, pa.array([10] * len(spans), INT))


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        ([days("event_ts", (9, 5), (5, 0)), days("seen", (5, 0), (9, 4))], ["event_ts"]),
        ([days("event_ts", (9, 5), (5, 0)), days("ingested", (9, 4), (4, 0))], ["event_ts", "ingested"]),
        ([days("created_at", (9, 5), (5, 0)), days("updated_at", (9, 5), (5, 0))], ["created_at"]),
        ([days("at", (9000, 5000), (5000, 4000))], []),
        ([days("at", (9, 5), (5, -40))], []),
        ([days("event_date", (9, 5), (5, 0), kind="date"), days("x", (9, 5), (5, 0))], ["x"]),
        ([days("event_date", (9, 5), (5, 0), kind="date")], ["event_date"]),
        ([days("at", (9, 5), (5, 0), kind="string")], []),
        ([integers("lsn", (10**9, 10**9 + 7), (10**9 + 7, 10**9 + 9))], []),
        ([integers("ts", (1_789_000_000, 1_789_000_001), (1_789_000_002, 1_789_000_003))], ["ts"]),
        ([integers("ts", (1_789_000_000, 1_789_000_000_000))], []),
        ([days("none_ahead", (9, 5), (5, -1))], ["none_ahead"]),
    ],
)  # fmt: skip
def test_the_time_is_guessed_from_type_range_trend_and_name(
    columns: list[ColumnBounds], names: list[str]
) -> None:
    assert [each.path[0] for each in likeliest(time_candidates(columns, NOW))] == names


def test_a_column_without_statistics_is_a_candidate_that_does_not_fit() -> None:
    nothing = pa.nulls(2, INT)
    column = ColumnBounds(("event_ts",), "timestamp", nothing, nothing, nothing)
    [candidate] = time_candidates([column], NOW)
    assert (candidate.share, candidate.rising, candidate.first_ns) == (None, None, None)
    assert not candidate.fits


@pytest.mark.parametrize(
    ("low", "high", "unit"),
    [
        (10**9, 4 * 10**9, "s"),
        (10**12, 4 * 10**12, "ms"),
        (10**15, 4 * 10**15, "us"),
        (10**18, 4 * 10**18, "ns"),
        (10**9, 10**12, None),
        (0, 10**9, None),
        (10**8, 10**8, None),
        (-(10**9), -1, None),
    ],
)
def test_a_unit_is_guessed_only_where_both_bounds_have_it(
    low: int, high: int, unit: str | None
) -> None:
    assert unit_of(low, high) == unit


def test_the_range_of_a_candidate_is_in_nanoseconds() -> None:
    [candidate] = time_candidates([integers("ts", (1_789_000_000, 1_789_500_000))], NOW)
    assert (candidate.first_ns, candidate.last_ns) == (1_789_000_000 * 10**9, 1_789_500_000 * 10**9)
    assert (candidate.unit, candidate.share, candidate.rising) == ("s", 1.0, None)
