# ruff: noqa: DTZ001  (instants in UTC without a zone, which compare with times that have none)
from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from retention.delta import snapshot
from retention.delta.shapes import LIVE_FILES, STATS_PARSED
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.statistics import ColumnBounds, LoggedIntegers, bounds
from tests.support.delta_tables import metadata

EPOCH = datetime(1970, 1, 1)
DAY_US = 86_400_000_000
INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 30))
"""Instants in UTC, without a zone so that they compare with times that have none."""


def micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def table(*stats: Any, partitions: tuple[str, ...] = (), **columns: Any) -> DeltaSnapshot:
    """A table of files with statistics (text, or an object that becomes text)."""
    rows = len(stats)
    texts = [each if each is None or isinstance(each, str) else json.dumps(each) for each in stats]
    given_columns = {"path": [f"{n}" for n in range(rows)], "stats": texts, **columns}
    arrays = [pa.array(given_columns.get(f.name, [None] * rows), f.type) for f in LIVE_FILES]
    described = metadata(*((name, "string") for name in partitions), partitions=partitions)
    live = pa.Table.from_arrays(arrays, schema=LIVE_FILES)
    return DeltaSnapshot("t", 0, {"minWriterVersion": 2}, described["metaData"], live)


def of(
    *path: str, low: Any = None, high: Any = None, nulls: Any = 0, rows: int = 9
) -> dict[str, Any]:
    """Statistics of one leaf."""
    leaves: dict[str, Any] = {"minValues": low, "maxValues": high, "nullCount": nulls}
    for name in reversed(path):
        leaves = {kind: {name: value} for kind, value in leaves.items()}
    return {"numRecords": rows, **leaves}


def row(found: ColumnBounds, index: int = 0) -> tuple[int | None, ...]:
    return tuple(each[index].as_py() for each in found)


def truncated(instant: datetime, form: str, hours: int, zone: str) -> str:
    """An instant as a writer has it in statistics: milliseconds at most, in its session's zone."""
    floor = instant - timedelta(microseconds=instant.microsecond % 1000)
    offset = timedelta(hours=hours, minutes=30)
    text = (floor + (offset if zone == "offset" else timedelta())).strftime(form)
    text = text.replace("%L", f"{floor.microsecond // 1000:03d}")
    ending = {"Z": "Z", "none": "", "offset": timezone(offset).tzname(None)[3:]}[zone]
    return text + ending


FORMS = st.sampled_from(["%4Y-%m-%dT%H:%M:%S.%L", "%4Y-%m-%d %H:%M:%S.%L"])
ZONES = st.sampled_from([("timestamp", "Z"), ("timestamp", "offset"), ("timestamp_ntz", "none")])


@given(
    instants=st.lists(INSTANTS, min_size=1, max_size=9),
    form=FORMS,
    zone=ZONES,
    hours=st.integers(-12, 12),
)
def test_bounds_of_instants_include_every_value_and_little_more(
    instants: list[datetime], form: str, zone: tuple[str, str], hours: int
) -> None:
    kind, ending = zone
    texts = [truncated(each, form, hours, ending) for each in (min(instants), max(instants))]
    low, high, nulls, rows = row(
        bounds(table(of("ts", low=texts[0], high=texts[1])), ("ts",), kind)
    )
    assert low is not None
    assert high is not None
    assert low <= micros(min(instants)) < low + 1_000
    assert high - 1_000 <= micros(max(instants)) <= high
    assert (nulls, rows) == (0, 9)


@given(
    whole=st.datetimes(datetime(1900, 1, 1), datetime(9999, 12, 30)).map(
        lambda at: at.replace(microsecond=0)
    )
)
def test_an_instant_may_lack_its_fraction(whole: datetime) -> None:
    text = whole.isoformat() + "Z"
    assert row(bounds(table(of("ts", low=text, high=text)), ("ts",), "timestamp"))[:2] == (
        micros(whole),
        micros(whole) + 1_000,
    )


@given(days=st.lists(st.dates(date(1, 1, 1)), min_size=1, max_size=3))
def test_a_date_is_from_its_first_to_its_last_instant(days: list[date]) -> None:
    stats = of("a", "b", low=str(min(days)), high=str(max(days)))
    low, high, *_ = row(bounds(table(stats), ("a", "b"), "date"))
    first, last = (datetime(each.year, each.month, each.day) for each in (min(days), max(days)))
    assert (low, high) == (micros(first), micros(last) + DAY_US - 1)


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_integers_are_exact(numbers: list[int]) -> None:
    found = bounds(table(of("n", low=min(numbers), high=max(numbers))), ("n",), "long")
    assert row(found)[:2] == (min(numbers), max(numbers))


UNKNOWN = [
    ("timestamp", "2025-10-09T08:53:23.000"),
    ("timestamp", "2025-10-09"),
    ("timestamp", "2025-10-09T08:53:23.0001234Z"),
    ("timestamp", "1800-01-01T00:00:00.000+05:53:28"),
    ("timestamp", "2025-13-09T08:53:23.000Z"),
    ("timestamp", "+10000-01-01T00:00:00.000Z"),
    ("timestamp", 1760000000000),
    ("timestamp_ntz", "2025-10-09T08:53:23.000Z"),
    ("date", "2025-02-30"),
    ("date", "2025-02-03T00:00:00Z"),
    ("date", 7),
    ("long", "7"),
    ("long", 7.0),
    ("long", True),
    ("long", 2**63),
    ("double", 7.5),
    ("string", "2025-10-09"),
    ("decimal(3,1)", 7.5),
]


@pytest.mark.parametrize(("kind", "value"), UNKNOWN)
def test_an_unknown_form_is_unknown_and_spoils_no_other_file(kind: str, value: Any) -> None:
    good = {"date": "2025-10-09", "long": 7, "timestamp_ntz": "2025-10-09T08:53:23.000"}
    known = good.get(kind, "2025-10-09T08:53:23.000Z")
    stats = [of("c", low=value, high=value), of("c", low=known, high=known)]
    found = bounds(table(*stats), ("c",), kind)
    assert row(found) == (None, None, 0, 9)
    assert (row(found, 1)[0] is not None) == (kind in (*good, "timestamp"))


@pytest.mark.parametrize(
    "stats",
    [
        None,
        "",
        "{}",
        "null",
        "[]",
        "{",
        "no json",
        ' {"numRecords":9}{',
        '{"minValues":3}',
        '{"minValues":{"c":{}}}',
    ],
)
def test_missing_or_damaged_statistics_are_unknown(stats: str | None) -> None:
    known = of("c", low=1, high=2)
    found = bounds(table(known, stats, known), ("c",), "long")
    assert row(found, 1) == (None,) * 4
    assert row(found, 0) == row(found, 2) == (1, 2, 0, 9)


def test_two_objects_in_a_text_do_not_shift_the_next_file() -> None:
    first, last = of("c", low=1, high=2), of("c", low=5, high=6)
    found = bounds(table(f"{json.dumps(first)}\n{json.dumps(first)}", " ", last), ("c",), "long")
    assert row(found, 0) == row(found, 1) == (None,) * 4
    assert row(found, 2)[:2] == (5, 6)


def test_contradictory_bounds_are_unknown() -> None:
    assert row(bounds(table(of("c", low=3, high=2)), ("c",), "long")) == (None, None, 0, 9)


def test_a_vector_hides_rows_but_bounds_hold() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "x", "cardinality": 4}
    found = bounds(table(of("c", low=1, high=2), vector=[vector]), ("c",), "long")
    assert row(found) == (1, 2, 0, 5)


@pytest.mark.parametrize(
    ("kind", "text", "low", "high"),
    [
        ("timestamp", "2026-02-03T04:05:06.789012Z", 1770091506789012, 1770091506790012),
        ("timestamp", "2026-02-03 04:05:06.789012", None, None),
        ("timestamp_ntz", "2026-02-03 04:05:06.789012", 1770091506789012, 1770091506790012),
        ("date", "1969-12-31", -DAY_US, -1),
        ("integer", "-5", -5, -5),
        ("string", "x", None, None),
    ],
)
def test_a_partition_column_has_the_value_of_its_directory(
    kind: str, text: str, low: int | None, high: int | None
) -> None:
    values = [[("p", text)], [("p", None)], [("p", "")], []]
    state = table(*[{"numRecords": 4}] * 4, partitions=("p",), partition_values=values)
    found = bounds(state, ("p",), kind)
    assert row(found) == (low, high, 0, 4)
    assert [row(found, index) for index in (1, 2, 3)] == [(None, None, 4, 4)] * 3


def test_typed_statistics_stand_where_a_file_has_no_json() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    typed = {
        "numRecords": 3,
        "minValues": {"ts": at, "n": 1, "day": date(2026, 1, 2), "x": 1.5},
        "maxValues": {"ts": at, "n": 2, "day": date(2026, 1, 2), "x": 1.5},
        "nullCount": {"ts": 0, "n": 1, "day": 0, "x": 0},
    }
    state = table(None, of("n", low=7, high=8))
    live = state.files.append_column(STATS_PARSED, pa.array([typed, None]))
    state = DeltaSnapshot("t", 0, state.protocol, state.metadata, live)
    at_us = micros(at.replace(tzinfo=None))
    assert row(bounds(state, ("ts",), "timestamp")) == (at_us, at_us + 1_000, 0, 3)
    assert [row(bounds(state, ("n",), "integer"), n) for n in (0, 1)] == [
        (1, 2, 1, 3),
        (7, 8, 0, 9),
    ]
    assert row(bounds(state, ("day",), "date"))[:2] == (
        micros(datetime(2026, 1, 2)),
        micros(datetime(2026, 1, 3)) - 1,
    )
    assert row(bounds(state, ("x",), "double")) == (None, None, 0, 3)
    assert row(bounds(state, ("absent",), "long")) == (None, None, None, 3)
    expected = {
        **typed,
        "minValues": {"ts": "2026-01-02T03:04:05.678Z", "n": 1, "day": "2026-01-02", "x": 1.5},
    }
    assert json.loads(state.add_of(0)["stats"])["minValues"] == expected["minValues"]


def test_bounds_of_a_table_of_deltalake_hold(tmp_path: Path) -> None:
    at = [datetime(1969, 12, 31, 23, 59, 58, 999777), datetime(2025, 10, 9, 8, 53, 23, 777)]
    for start in (0, 1):
        values = [at[start], None, at[start]]
        columns = {
            "ts": pa.array(values, pa.timestamp("us", "UTC")),
            "ntz": pa.array(values, pa.timestamp("us")),
        }
        write_deltalake(tmp_path, pa.table(columns), mode="append")
    DeltaTable(tmp_path).create_checkpoint()
    state = snapshot.read(str(tmp_path))
    for name, kind in (("ts", "timestamp"), ("ntz", "timestamp_ntz")):
        found = bounds(state, (name,), kind)
        rows = sorted(row(found, index) for index in (0, 1))
        for (low, high, nulls, count), truth in zip(rows, map(micros, at), strict=True):
            assert low is not None
            assert high is not None
            assert low <= truth <= high <= truth + 2_000
            assert (nulls, count) == (1, 3)


LEAVES = (("numRecords",), ("minValues", "n"), ("nullCount", "n"))
EDGES = st.sampled_from([2**62, 2**63 - 1, 2**63, -(2**63) + 1, -(2**63), -(2**63) - 1])
NUMBERS = EDGES | st.none() | st.integers(-(2**64), 2**64) | st.just(1.0) | st.just("1")
TEXTS = st.none() | st.just("{}") | st.builds(of, st.just("n"), low=NUMBERS, nulls=NUMBERS)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_few_statistics_are_read_as_many_are(stats: list[Any]) -> None:
    few = LoggedIntegers(LEAVES).of(table(*stats).files)
    many = LoggedIntegers(LEAVES).of(table(*stats * 70).files)
    assert {leaf: values.slice(0, len(stats)) for leaf, values in many.items()} == few


@given(st.lists(st.lists(TEXTS, max_size=4), min_size=2, max_size=4))
def test_statistics_that_were_read_before_are_told_the_same(versions: list[list[Any]]) -> None:
    kept = LoggedIntegers(LEAVES)
    for stats in versions:
        files = table(*stats).files
        assert kept.of(files) == LoggedIntegers(LEAVES).of(files)
