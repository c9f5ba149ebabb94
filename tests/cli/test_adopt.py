"""The command that adopts a table: it looks, asks, and writes one entry of the configuration."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from retention.api import catalog_names
from retention.cli import adopting
from retention.config import load_config
from tests.support.foreign_tables import write_table
from tests.support.sandboxes import Commands
from tests.support.trees import tree

WRITTEN = """\
# Ours.
warehouse: ./w   # the lake
tables:
  - name: first
    location: ./elsewhere
    # a comment of the first
# the end
"""


NOW = datetime(2026, 11, 20, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopting, "time_ns", lambda: int(NOW.timestamp()) * 10**9)


@pytest.fixture
def lake(tmp_path: Path) -> Commands:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "retention.yaml").write_text(WRITTEN)
    return Commands(tmp_path / "w")


def test_a_table_is_looked_at_and_listed_without_a_limit(tmp_path: Path, lake: Commands) -> None:
    place = write_table(tmp_path, "sessions", NOW)
    before = tree(Path(place))
    done = lake.run("adopt", place)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "400 rows in 4 files" in done.stdout
    assert "  may be the time: created_at (timestamp): " in done.stdout
    assert "  max_age: 30d would remove 100 to 200 rows: 1 file whole" in done.stdout
    assert "  max_age: 90d would remove no row" in done.stdout
    assert done.stdout.endswith("retention.yaml, without a limit\n")
    assert (tmp_path / "w" / "retention.yaml").read_text() == WRITTEN.replace(
        "# the end\n",
        f"""\
  - name: sessions
    location: "{place}"
    time: created_at
    # key: session_id
    # expires_at: expires_at
    # max_age: 90d
# the end
""",
    )
    _, sessions = load_config(tmp_path / "w" / "retention.yaml").tables
    assert (sessions.name, sessions.columns.time) == ("sessions", ("created_at",))
    assert sessions.policy.limits.max_age_ns is None
    assert tree(Path(place)) == before
    again = lake.run("adopt", place, "--name", "other")
    assert again.exit_code == 2
    assert "table sessions is at this location, too" in again.stderr


def test_a_person_decides_between_event_and_arrival(
    tmp_path: Path, lake: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write_table(tmp_path, "clicks", NOW)
    alone = lake.run("adopt", place)
    assert alone.exit_code == 2
    assert "name one with --time: event_ts (timestamp): " in alone.stderr
    assert "; _ingested_at (timestamp): " in alone.stderr
    assert (tmp_path / "w" / "retention.yaml").read_text() == WRITTEN
    monkeypatch.setattr(adopting, "can_ask", lambda: True)
    asked = lake.run("adopt", place, stdin="_ingested_at\n")
    assert asked.exit_code == 0
    assert "Which column has the time of a row (event_ts, _ingested_at)?" in asked.stderr
    table = load_config(tmp_path / "w" / "retention.yaml").tables[-1]
    assert (table.name, table.columns.time) == ("clicks", ("_ingested_at",))


def test_a_column_and_a_name_are_taken_as_given(tmp_path: Path, lake: Commands) -> None:
    place = write_table(tmp_path, "changes", NOW)
    document = lake.json("adopt", place, "--time", "ts_ms", "--name", "cdc")
    assert (document["table"], document["time"], document["rows"]) == ("cdc", "ts_ms", 400)
    assert [limit["rows_at_most"] for limit in document["limits"]] == [200, 0]
    assert [time["path"] for time in document["times"]] == ["ts_ms", "updated_at", "lsn"]
    [_, table] = load_config(tmp_path / "w" / "retention.yaml").tables
    assert (table.name, table.columns.unit) == ("cdc", "ms")


def test_times_without_a_zone_are_those_of_utc_until_a_person_corrects_it(
    tmp_path: Path, lake: Commands
) -> None:
    times = pa.array([NOW.replace(tzinfo=None)], pa.timestamp("us"))
    write_deltalake(tmp_path / "plain", pa.table({"Order at": times}))
    done = lake.run("adopt", str(tmp_path / "plain"), "--time", "`Order at`")
    assert done.exit_code == 0
    assert "correct `zone` of plain if that is wrong" in done.stdout
    table = load_config(tmp_path / "w" / "retention.yaml").tables[-1]
    assert (table.columns.time, table.columns.zone) == (("Order at",), "UTC")


def test_the_configuration_is_created_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write_table(tmp_path / "lake", "devices", NOW)
    monkeypatch.chdir(tmp_path)
    done = Commands(tmp_path / "new").run("adopt", place)
    assert done.exit_code == 0
    [table] = load_config(tmp_path / "new" / "retention.yaml").tables
    assert (table.name, table.columns.time, table.columns.unit) == ("devices", ("time",), "s")


def test_a_relative_location_stays_relative_to_the_configuration(
    tmp_path: Path, lake: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write_table(tmp_path / "lake", "devices", NOW)
    monkeypatch.chdir(tmp_path / "lake")
    assert lake.run("adopt", "devices").exit_code == 0
    config = tmp_path / "w" / "retention.yaml"
    assert '"../lake/devices"' in config.read_text()
    assert load_config(config).tables[-1].location == place


@pytest.mark.parametrize(
    ("location", "text"),
    [
        (
            "lake.gold.events",
            "is a name in a catalog, which only Spark knows, and the engine is local",
        ),
        ("gs://lake/events", "is neither a path nor s3://bucket/prefix"),
        ("nowhere", "this is no Delta table"),
    ],
)
def test_a_location_without_a_log_is_refused(lake: Commands, location: str, text: str) -> None:
    done = lake.run("--engine", "local", "adopt", location)
    assert done.exit_code == 2
    assert text in done.stderr


def test_a_name_in_a_catalog_is_refused_in_one_sentence_without_spark(
    lake: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_names, "is_missing", lambda module: True)
    done = lake.run("adopt", "lake.gold.events")
    assert (done.exit_code, done.stderr) == (
        2,
        "lake.gold.events is a name in a catalog, which only Spark knows, and pyspark is not installed; install "
        "lake-retention[spark], or write the table's path\n",
    )


def test_a_directory_of_parquet_files_is_said_to_be_one(tmp_path: Path, lake: Commands) -> None:
    place = tmp_path / "exports"
    for number, age in enumerate((40, 20, 1)):
        at = pa.array([NOW - timedelta(days=age)] * 2, pa.timestamp("us", "UTC"))
        (place / f"day={number}").mkdir(parents=True)
        file = place / f"day={number}" / "part-0.parquet"
        pq.write_table(pa.table({"created_at": at, "user_id": [1, 2]}), file)
        os.utime(file, (0, 0))
    (place / "broken.parquet").write_bytes(b"")
    os.utime(place / "broken.parquet", (0, 0))
    before = tree(place)
    done = lake.run("adopt", str(place))
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{place}: 6 rows in 3 files" in done.stdout
    assert "a directory of Parquet files without a log: only whole files are removed" in done.stdout
    assert "left out: 1 file (without readable footer)" in done.stdout
    assert "max_age: 30d would remove 1 file with 2 rows" in done.stdout
    assert load_config(tmp_path / "w" / "retention.yaml").tables[1].format == "parquet"
    assert tree(place) == before
    empty = tmp_path / "empty"
    empty.mkdir()
    done = lake.run("adopt", str(empty))
    assert done.exit_code == 2
    assert "it has neither a Delta log nor a complete Parquet file" in done.stderr
