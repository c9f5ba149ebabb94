from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.units import DAY, HOUR, MICROSECOND, MINUTE, SECOND
from retention.rules.tables.ticks import Kind, TimeColumn, ticks_of, time_column
from tests.support.laws import law

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00Z", "2026-10-25T01:00Z"],
    "America/Havana": ["2024-03-10T05:00Z", "2024-11-03T05:00Z"],
    "America/Sao_Paulo": ["2018-11-04T03:00Z", "2018-02-18T02:00Z"],
    "Australia/Lord_Howe": ["2024-04-06T15:00Z", "2024-10-05T15:30Z"],
    "Pacific/Apia": ["2011-12-30T10:00Z"],
    "Asia/Kathmandu": ["2026-01-01T00:00Z"],
}
"""Zone → instants near which its clocks change, if they do."""
NEAR = st.one_of(
    st.integers(-26 * 60, 26 * 60).map(lambda minutes: minutes * MINUTE // MICROSECOND),
    st.integers(-26 * HOUR // MICROSECOND, 26 * HOUR // MICROSECOND),
)


def ns(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1) * MICROSECOND


def later_instant(local_us: int, zone: str) -> int:
    """The later of the instants of a local time, by Python's own two readings of it; microseconds."""
    local = (EPOCH + timedelta(microseconds=local_us)).replace(tzinfo=ZoneInfo(zone))
    readings = [local.replace(fold=fold).astimezone(UTC) for fold in (0, 1)]
    return max((reading - EPOCH) // timedelta(microseconds=1) for reading in readings)


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, int, int]:
    """A zone, an instant near a change of its clocks, and a tick near that; microseconds."""
    zone = draw(st.sampled_from(list(CHANGES)))
    change = ns(draw(st.sampled_from(CHANGES[zone]))) // MICROSECOND
    offset = datetime.fromtimestamp(change / 1e6, ZoneInfo(zone)).utcoffset() or timedelta()
    local = change + offset // timedelta(microseconds=1)
    return zone, change + draw(NEAR), local + draw(NEAR)


@law
@given(moments())
def test_a_local_time_is_due_at_the_later_of_its_instants(moment: tuple[str, int, int]) -> None:
    zone, instant, tick = moment
    cutoff = TimeColumn("timestamp_ntz", zone).cutoff(instant * MICROSECOND + 999)
    expected = later_instant(tick, zone) <= instant
    ticks = np.array([tick])
    assert cutoff.takes(ticks).tolist() == [expected]
    assert cutoff.takes_all(ticks, ticks).tolist() == [expected]
    assert cutoff.takes_none(ticks, ticks).tolist() == [not expected]


@law
@given(moments())
def test_a_day_is_due_at_its_end(moment: tuple[str, int, int]) -> None:
    zone, instant, tick = moment
    day = tick * MICROSECOND // DAY
    due = TimeColumn("date", zone).cutoff(instant * MICROSECOND).takes(np.array([day]))
    midnight = (day + 1) * DAY // MICROSECOND
    assert due.tolist() == [later_instant(midnight, zone) <= instant]


@law
@given(moments(), st.integers(-3, 3))
def test_a_range_of_ticks_is_due_as_its_ticks_are(moment: tuple[str, int, int], shift: int) -> None:
    zone, instant, tick = moment
    cutoff = TimeColumn("timestamp_ntz", zone).cutoff(instant * MICROSECOND)
    edge = cutoff.last if shift % 2 or cutoff.later is None else cutoff.later[0]
    low, high = sorted((tick, edge + shift))
    inside = np.array([low, (low + high) // 2, high])
    takes = cutoff.takes(inside)
    lows, highs = np.array([low]), np.array([high])
    assert not cutoff.takes_all(lows, highs)[0] or takes.all()
    assert not cutoff.takes_none(lows, highs)[0] or not takes.any()


@pytest.mark.parametrize(
    ("column", "instant", "last"),
    [
        (TimeColumn("timestamp"), "2026-05-01T00:00:00.000001Z", 1_777_593_600_000_001),
        (TimeColumn("timestamp", "Europe/Berlin"), "1969-12-31T23:59:59Z", -1_000_000),
        (TimeColumn("date"), "2026-05-01T00:00Z", 20_573),
        (TimeColumn("date"), "2026-04-30T23:59:59Z", 20_572),
        (TimeColumn("date", "Asia/Kathmandu"), "2026-04-30T18:15Z", 20_573),
        (TimeColumn("s"), "1970-01-01T00:00:01.999999Z", 1),
        (TimeColumn("s"), "1969-12-31T23:59:59.5Z", -1),
        (TimeColumn("ms"), "1970-01-01T00:00:01.999999Z", 1_999),
        (TimeColumn("ns"), "1970-01-01T00:00:01Z", SECOND),
    ],
    ids=str,
)
def test_the_last_due_tick(column: TimeColumn, instant: str, last: int) -> None:
    assert column.cutoff(ns(instant)).last == last


def test_a_day_is_ahead_until_it_begins() -> None:
    noon = ns("2026-05-01T12:00Z")
    assert TimeColumn("date").begun(noon).last == noon // DAY
    assert TimeColumn("timestamp").begun(noon).last == noon // MICROSECOND


def test_ticks_are_floored_and_keep_nulls_and_the_year_9999() -> None:
    forever = datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
    assert ticks_of(pa.array([forever, None])).to_pylist() == [253_402_300_799_999_999, None]
    assert ticks_of(pa.array([-1, 1_000, 1_001], pa.timestamp("ns"))).to_pylist() == [0, 1, 2]
    assert ticks_of(pa.array([-1, 2], pa.timestamp("ms", "UTC"))).to_pylist() == [-1_000, 2_000]
    assert ticks_of(pa.array([19_000, None], pa.date32())).to_pylist() == [19_000, None]
    assert ticks_of(pa.array([7], pa.int16())).to_pylist() == [7]


@pytest.mark.parametrize(
    ("delta_type", "kind"),
    [
        ("date", "date"),
        ("timestamp", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("long", "ms"),
        ("integer", "ms"),
        ("double", None),
        ("string", None),
        ({"type": "array"}, None),
    ],
    ids=str,
)
def test_types_of_time_columns(delta_type: object, kind: Kind | None) -> None:
    column = time_column(delta_type, "ms", "Asia/Kathmandu")
    assert (column and column.kind) == kind


def test_an_integer_without_a_unit_is_no_time() -> None:
    assert time_column("long", None, None) is None
