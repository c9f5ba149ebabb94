from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize, TypeAdapter

from retention.core.units import (
    DAY,
    DURATION_PATTERN,
    HOUR,
    INT64_MAX,
    MINUTE,
    SECOND,
    SIZE_PATTERN,
    format_duration,
    format_instant,
    format_size,
    parse_as_of,
    parse_duration,
    parse_instant,
    parse_size,
)
from retention.errors import UsageError


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("30d", 30 * DAY),
        ("2w", 14 * DAY),
        ("1h30m", 90 * MINUTE),
        ("1.5h", 90 * MINUTE),
        (".5s", SECOND // 2),
        ("1.h", HOUR),
        ("1.000000001s", SECOND + 1),
        ("0.1ns", 0),
        ("100us", 100_000),
        ("100µs", 100_000),
        ("100μs", 100_000),
        ("-5m", -5 * MINUTE),
        ("+5m", 5 * MINUTE),
        ("0", 0),
        (100, 100),
    ],
)
def test_a_duration_is_read_exactly(text: str | int, ns: int) -> None:
    assert parse_duration(text) == ns


def test_a_bare_integer_counts_in_the_unit_of_its_place() -> None:
    assert parse_duration(7, bare="us") == 7_000


@pytest.mark.parametrize(
    ("text", "proposal"),
    [
        ("30 days", '"30d"'),
        ("2 weeks", '"2w"'),
        ("90 Minutes", '"90m"'),
        ("1 month", '"30d"'),
        ("5ms ", '"5ms"'),
        ("30", '"30s"'),
        ("", '"30d"'),
        ("1e9s", '"30d"'),
        (1.5, '"1.5s"'),
        (True, '"30d"'),
        ("\u0661s", '"30d"'),
    ],
)
def test_a_wrong_duration_is_answered_with_the_nearest_right_one(text: str, proposal: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_duration(text)
    assert proposal in str(error.value)


def test_a_duration_beyond_64_bits_is_refused() -> None:
    assert parse_duration(f"{INT64_MAX}ns") == INT64_MAX
    with pytest.raises(UsageError, match="292 years"):
        parse_duration("300000w")


@given(st.integers(-INT64_MAX, INT64_MAX))
def test_a_written_duration_reads_as_the_same_number(ns: int) -> None:
    assert parse_duration(format_duration(ns)) == ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (30 * DAY, "30d"),
        (90 * MINUTE, "1h30m"),
        (30 * DAY + 4 * HOUR, "30d4h"),
        (MINUTE + SECOND // 2, "1m500ms"),
        (1_500_000, "1.5ms"),
        (999, "999ns"),
        (-SECOND, "-1s"),
    ],
)
def test_a_duration_is_written_in_the_units_people_use(ns: int, text: str) -> None:
    assert format_duration(ns) == text


@pytest.mark.parametrize(
    "text", ["10GiB", "1.5 TiB", "500", "10m", "3 b", "2kB", "1kibit", "8 EIB", "0.1MiB", "7 kbit"]
)
def test_a_size_means_what_pydantic_reads_in_it(text: str) -> None:
    assert parse_size(text) == TypeAdapter(ByteSize).validate_python(text)


@pytest.mark.parametrize("text", ["", "10 GiB of", "many", "1e9", "5 days", None, 1.5, True])
def test_a_wrong_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="256MiB"):
        parse_size(text)


def test_sizes_keep_their_sign_and_their_last_byte() -> None:
    assert parse_size(-1) == parse_size("-1") == -1
    assert parse_size(f"{2**60 + 1}") == 2**60 + 1


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536 * 1024**2, "1.5 GiB"),
        (2**20 - 1, "1 MiB"),
        (10 * 2**30, "10 GiB"),
        (2**63, "8 EiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_a_size_is_written_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-20T01:00:00.123456789+01:00", 1_795_132_800_123_456_789),
        ("2026-11-19t23:30:00-00:30", 1_795_132_800_000_000_000),
        ("1969-12-31 23:59:59.5Z", -500_000_000),
        ("1795132800123456789", 1_795_132_800_123_456_789),
        (-5, -5),
    ],
)
def test_an_instant_is_read_exactly(text: str | int, ns: int) -> None:
    assert parse_instant(text) == ns


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20",
        "2026-11-20T00:00:00",
        "2026-02-30T00:00:00Z",
        "2026-11-20T24:00:00Z",
        "2026-11-20T00:00:00.1234567890Z",
        "yesterday",
        "9999-01-01T00:00:00Z",
        2**63,
        1.5,
    ],
)
def test_a_wrong_instant_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not an instant|out of range"):
        parse_instant(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_written_instant_reads_as_the_same_number(ns: int) -> None:
    assert parse_instant(format_instant(ns)) == ns


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 11, 20, tzinfo=UTC), "2026-11-20T00:00:00Z"),
        (date(2026, 11, 20), "2026-11-20T00:00:00Z"),
        (
            datetime(2026, 11, 20, 1, 2, 3, 456_789, timezone(timedelta(hours=-1))),
            "2026-11-20T02:02:03.456789Z",
        ),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), "1969-12-31T23:59:59.999999Z"),
        (
            pd.Timestamp("2026-07-20T00:00:00.123456789", tz="Europe/Berlin"),
            "2026-07-19T22:00:00.123456789Z",
        ),
        # Clocks are set back there, so an hour occurs twice.
        (
            pd.Timestamp("2026-10-25T00:30:00Z").tz_convert("Europe/Berlin"),
            "2026-10-25T00:30:00Z",
        ),
        (
            pd.Timestamp("2026-10-25T01:30:00Z").tz_convert("Europe/Berlin"),
            "2026-10-25T01:30:00Z",
        ),
        (np.int64(1_500_000_000), "1970-01-01T00:00:01.5Z"),
    ],
)
def test_a_datetime_is_an_instant(value: datetime, text: str) -> None:
    assert format_instant(parse_instant(value)) == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (datetime(2026, 11, 20), "has no time zone"),  # noqa: DTZ001
        (pd.Timestamp("2026-11-20"), "has no time zone"),
        (pd.NaT, "NaT is not an instant"),
        (datetime(9999, 12, 31, tzinfo=UTC), "out of range"),
    ],
)
def test_a_datetime_that_is_no_instant_is_refused(value: datetime, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_instant(value)


def test_an_instant_is_written_with_as_many_decimals_as_it_takes() -> None:
    assert format_instant(0) == "1970-01-01T00:00:00Z"
    assert format_instant(1_795_132_800_120_000_000) == "2026-11-20T00:00:00.12Z"


@given(st.from_regex(DURATION_PATTERN, fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_every_text_of_the_published_duration_pattern_is_a_duration(text: str) -> None:
    try:
        parse_duration(text)
    except UsageError as error:
        assert "out of range" in str(error)  # noqa: PT017


@given(st.from_regex(SIZE_PATTERN, fullmatch=True, alphabet=st.characters(codec="ascii")))
def test_every_text_of_the_published_size_pattern_is_a_size(text: str) -> None:
    assert isinstance(parse_size(text), int)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-11-20", "2026-11-20T00:00:00Z"),
        ("2024-02-29", "2024-02-29T00:00:00Z"),
        ("now", "2027-01-15T08:00:00Z"),
        ("now-1d", "2027-01-14T08:00:00Z"),
        ("now+1d", "2027-01-16T08:00:00Z"),
        ("now-1w2h0.5s", "2027-01-08T05:59:59.5Z"),
        ("2026-11-20T01:00:00+01:00", "2026-11-20T00:00:00Z"),
        ("1800000000000000001", "2027-01-15T08:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
    ],
)
def test_the_instant_of_a_pass_is_also_a_date_or_before_now(text: str | int, wanted: str) -> None:
    assert format_instant(parse_as_of(text, 1_800_000_000 * SECOND)) == wanted


@pytest.mark.parametrize(
    "text", ["2026-02-30", "2026-11", "now-", "now-5", "now--1d", "now+", "now-1x", "tomorrow"]
)
def test_what_is_no_instant_of_a_pass_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not an? (instant|duration)"):
        parse_as_of(text, 0)
