"""Producer timestamps: a table of instants with the answer for each, and the same result for arrays."""

from __future__ import annotations

import numpy as np
import pytest

from retention.core.accepted_times import (
    ALL_TIMES,
    EARLIEST_NS,
    PLAUSIBLE_TIMES,
    AcceptedTimes,
    accepted_times,
)
from retention.core.units import INT64_MAX, MICROSECOND, SECOND, format_instant, parse_instant

AT = parse_instant("2025-11-25T00:00:00Z")
HELD = "is outside 1677-09-21 to 2262-04-11, the range of 64 bits of nanoseconds"
OPTION = "; --any-time, in Python any_time=True, takes such times as they are"


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (AT, None),
        (EARLIEST_NS, None),
        (INT64_MAX, None),
        (
            AT // 10**6,
            "ts_ns 1764028800000 is 1970-01-01T00:29:24.0288Z, before 1990; it is 2025-11-25T00:00:00Z if milliseconds "
            f"are meant: multiply by 1,000,000{OPTION}",
        ),
        (
            AT // 10**9,
            "ts_ns 1764028800 is 1970-01-01T00:00:01.7640288Z, before 1990; it is 2025-11-25T00:00:00Z if seconds are "
            f"meant: multiply by 1,000,000,000{OPTION}",
        ),
        (
            AT // 10**3,
            "ts_ns 1764028800000000 is 1970-01-21T10:00:28.8Z, before 1990; it is 2025-11-25T00:00:00Z if microseconds "
            f"are meant: multiply by 1,000{OPTION}",
        ),
        (
            EARLIEST_NS - 1,
            f"ts_ns 631151999999999999 is 1989-12-31T23:59:59.999999999Z, before 1990{OPTION}",
        ),
        (0, f"ts_ns 0 is 1970-01-01T00:00:00Z, before 1990{OPTION}"),
        (
            INT64_MAX + 1,
            f"ts_ns 9223372036854775808 {HELD}",
        ),
    ],
)
def test_a_number_is_refused_with_the_unit_that_it_hints_at(ns: int, said: str | None) -> None:
    assert PLAUSIBLE_TIMES.refusal("ts_ns", ns, as_number=True) == said


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (
            AT // 1_000,
            "is before 1990; read in a unit 1,000 times larger it is 2025-11-25T00:00:00Z" + OPTION,
        ),
        (AT * 1_000, HELD + "; read in a unit 1,000 times smaller it is 2025-11-25T00:00:00Z"),
        (parse_instant("2000-01-01T00:00:00Z") - 3_660_000 * 86_400 * SECOND, HELD),
    ],
)
def test_a_time_is_shown_as_one(ns: int, said: str) -> None:
    refusal = PLAUSIBLE_TIMES.refusal("time", ns, as_number=False)
    assert refusal == f"time {format_instant(ns)} {said}"


def test_present_times_in_a_larger_unit_lie_beyond_64_bits() -> None:
    """So no bound is needed in the future."""
    assert EARLIEST_NS * 1_000 > INT64_MAX


@pytest.mark.parametrize("times", [ALL_TIMES, PLAUSIBLE_TIMES])
@pytest.mark.parametrize("unit", [1, MICROSECOND])
def test_arrays_are_judged_as_their_values(times: AcceptedTimes, unit: int) -> None:
    edges = [
        -(2**63),
        -(2**63) // 1000,
        -(2**63) // 1000 + 1,
        INT64_MAX // 1000,
        INT64_MAX // 1000 + 1,
        INT64_MAX,
    ]
    edges += [0, EARLIEST_NS // 1000, EARLIEST_NS // 1000 - 1, EARLIEST_NS, EARLIEST_NS - 1]  # fmt: skip
    for count in edges:
        refused = times.refusal("ts_ns", count * unit, as_number=True) is not None
        assert times.first_refused(np.array([AT // unit, count]), unit) == (1 if refused else -1)
    assert times.first_refused(np.array([], np.int64), unit) == -1


def test_any_time_takes_what_64_bits_hold() -> None:
    assert accepted_times(any_time=True).refusal("ts_ns", 5, as_number=True) is None
    assert accepted_times(any_time=True).refusal("ts_ns", 2**63, as_number=True)
    assert accepted_times(any_time=False) == PLAUSIBLE_TIMES


@pytest.mark.parametrize("ns", [-(2**63), 0, 951_782_400 * SECOND, -377_591_760_000 * SECOND])
def test_instants_are_written_as_pythons_calendar_has_them(ns: int) -> None:
    expected = np.datetime_as_string(np.datetime64(ns // SECOND, "s"))
    assert format_instant(ns).split("Z", maxsplit=1)[0].split(".", maxsplit=1)[0] == expected
