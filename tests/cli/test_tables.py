"""The commands on tables in place, beside a stream and alone, as somebody uses them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from prometheus_client.parser import text_string_to_metric_families

from retention.api.warehouse import open_warehouse
from retention.core.units import SECOND
from retention.doctor.finding import Finding
from retention.doctor.tables import check_table
from retention.history.kinds import TableRun
from retention.history.record import UNKNOWN
from retention.history.runs import history_of
from retention.schemas.history_export import TABLE_HISTORY_EXPORT
from tests.support.sandboxes import Commands

DAY = 86_400
AS_OF = "2026-11-20T00:00:00Z"
NOW = 1_795_132_800
"""`AS_OF` in seconds since the epoch."""
EVENTS = """\
  - name: events
    location: ../lake/events
    time: at
    unit: s
    max_age: 30d
    tags: [web]
"""
STREAM = "streams: [{name: ORDERS, subjects: [orders.>], max_age: 1h, tags: [web]}]\n"


@pytest.fixture
def lake(tmp_path: Path) -> Commands:
    """A configuration with one table: five files of 20 rows, a row a day, the newest at `AS_OF`."""
    for start in range(80, -1, -20):
        ages = range(start, start + 20)
        ats = pa.array([NOW - DAY * age for age in ages], pa.int64())
        write_deltalake(tmp_path / "lake" / "events", pa.table({"at": ats}), mode="append")
    return listing(tmp_path, EVENTS)


def listing(folder: Path, tables: str, head: str = "") -> Commands:
    (folder / "w").mkdir(exist_ok=True)
    text = f"warehouse: .\ndefaults: {{engine: local}}\n{head}tables:\n{tables}"
    (folder / "w" / "retention.yaml").write_text(text)
    return Commands(folder / "w")


def rows(folder: Path) -> int:
    return DeltaTable(folder / "lake" / "events").to_pyarrow_table().num_rows


def parsed(lake: Commands, *words: str) -> Any:
    done = lake.run("--format", "json", *words)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_a_configuration_of_tables_alone_has_every_command(tmp_path: Path, lake: Commands) -> None:
    planned = lake.run("plan", "--as-of", AS_OF)
    assert planned.stdout == (
        "events: would remove 70 of 100 rows (3.36 KiB in whole files) as of 2026-11-20T00:00:00Z: 70 by max_age\n"
        "  3 dropped, 1 cut, 1 kept files; read 1 file\n"
    ).replace("3.36 KiB", planned.stdout.split("(")[1].split(" in ")[0])
    assert lake.run("plan", "--exit-code", "--as-of", AS_OF).exit_code == 3
    estimated = parsed(lake, "plan", "--estimate", "--as-of", AS_OF)["tables"][0]
    assert estimated["removed_rows"] == {"lower": 60, "upper": 80}
    done = lake.run("apply", "--yes", "--as-of", AS_OF)
    assert (done.exit_code, rows(tmp_path)) == (0, 30)
    [record] = parsed(lake, "history")
    assert (record["table"], record["removed_rows"], record["kind"]) == (
        "events",
        70,
        "apply_table",
    )
    shown = lake.run("history", "show", record["run"])
    assert "apply, table events, -70 rows" in shown.stdout
    assert shown.stdout.count("dropped     all") == 3
    assert "  evidence: 10 rows; 3 files that went unread, with 60 rows, by the" in shown.stdout
    extent = {"form": "keys", "rows": 10, "files": 3, "rows_of_files": 60, "keys": None}
    assert parsed(lake, "history", "show", record["run"])["evidence"] == extent
    would = lake.run("undo", record["run"], "--dry-run")
    assert would.stdout == (
        "events: would restore 70 rows\n  the next pass under the same limits removes these rows again\n"
    )
    assert rows(tmp_path) == 30
    undone = lake.run("undo", record["run"])
    assert "events: restored 70 rows (run " in undone.stdout
    assert rows(tmp_path) == 100
    assert lake.run("undo", record["run"]).exit_code == 4
    state = parsed(lake, "state")
    assert [(each["table"], each["rows"], each["files"]) for each in state] == [("events", 100, 5)]
    assert "at least " in lake.run("state", "--behind").stdout


def test_the_json_of_a_pass_has_streams_and_tables(tmp_path: Path, lake: Commands) -> None:
    both = listing(tmp_path, EVENTS, STREAM)
    document = parsed(both, "plan", "--as-of", AS_OF)
    assert [entry["stream"] for entry in document["streams"]] == ["ORDERS"]
    [entry] = document["tables"]
    assert (entry["table"], entry["removed_rows"], entry["by_rule"]) == (
        "events",
        70,
        {"max_age": 70},
    )
    assert entry["files"] == {"dropped": 3, "cut": 1, "kept": 1}
    assert (entry["version_before"], entry["version_after"]) == (4, 4)
    assert [entry["stream"] for entry in parsed(both, "plan", "OR*")["streams"]] == ["ORDERS"]
    assert parsed(both, "plan", "OR*")["tables"] == []
    assert [each["table"] for each in parsed(both, "plan", "--tag", "web")["tables"]] == ["events"]
    [applied] = parsed(both, "apply", "events", "--yes", "--as-of", AS_OF)["tables"]
    assert (applied["removed_rows"], applied["version_after"]) == (70, 5)
    assert applied["run"]
    assert "tables" not in parsed(Commands(_of_streams(tmp_path)), "plan")


def _of_streams(folder: Path) -> Path:
    (folder / "s").mkdir()
    (folder / "s" / "retention.yaml").write_text(f"warehouse: .\n{STREAM}")
    return folder / "s"


def test_an_export_says_which_rows_of_which_file_went_and_what_came_of_it(
    tmp_path: Path, lake: Commands
) -> None:
    keyed = listing(tmp_path, f"{EVENTS}    key: at\n    max_rows_per_key: 5\n", STREAM)
    keyed.run("apply", "events", "--yes", "--as-of", AS_OF)
    [record] = parsed(keyed, "history", "events")
    keyed.run("undo", record["run"])
    undo, _ = parsed(keyed, "history", "events")
    document = parsed(keyed, "history", "export")
    first, second = document["runs"]
    assert (first["table"], first["run"], first["removed_rows"]) == ("events", record["run"], 70)
    assert (first["undone_by"], second["undoes"], second["restored_rows"]) == (
        undo["run"],
        record["run"],
        70,
    )
    assert (first["reasons"], first["evidence"], second["evidence"]) == (
        ["max_age 30d"],
        "keys",
        "none",
    )
    *whole, cut = sorted(first["removed"], key=lambda loss: -loss["rows"])
    assert [(loss["action"], loss["rows"], loss["keys"]) for loss in (*whole, cut)] == [
        *[("dropped", 20, None)] * 3,
        ("rewritten", 10, 10),
    ]
    assert (cut["time_min"], cut["time_max"]) == (str(NOW - 39 * DAY), str(NOW - 30 * DAY))
    assert parsed(keyed, "history", "export", "--to", first["began"])["runs"] == []
    printed = keyed.run("--format", "csv", "history", "export", "events")
    rows = list(csv.DictReader(printed.stdout.splitlines()))
    assert list(rows[0]) == TABLE_HISTORY_EXPORT.names
    assert sum(int(row["rows"] or 0) for row in rows) == 70
    file = tmp_path / "audit.parquet"
    words = ("--format", "parquet", "history", "export", "-o", str(file))
    for _ in range(2):
        assert keyed.run(*words, "events").exit_code == 0
    assert pq.read_table(file).to_pylist() == [
        row
        for table in open_warehouse(keyed.folder).table_history_tables()
        for row in table.to_pylist()
    ]
    alone = keyed.run("--format", "csv", "history", "export")
    assert (alone.exit_code, "without the runs on tables (events)" in alone.stderr) == (0, True)
    mixed = keyed.run("--format", "csv", "history", "export", "events", "ORDERS")
    assert (mixed.exit_code, "name either streams, or tables" in mixed.stderr) == (2, True)


def test_effective_says_where_the_settings_of_a_table_come_from(lake: Commands) -> None:
    answer = parsed(lake, "effective", "events")
    assert answer["table"] == "events"
    known = {setting["key"]: setting for setting in answer["settings"]}
    assert (known["max_age"]["value"], known["max_age"]["line"]) == (30 * DAY * SECOND, 8)
    assert known["engine"]["source"] == "defaults"
    assert re.search(r"max_age +30d +table events, line 8", lake.run("effective", "events").stdout)


def test_an_unknown_name_lists_tables_and_a_table_is_no_stream(
    tmp_path: Path, lake: Commands
) -> None:
    both = listing(tmp_path, EVENTS, STREAM)
    unknown = both.run("plan", "event")
    assert unknown.exit_code == 2
    assert "no such stream or table" in unknown.stderr
    assert "there are ORDERS, events; did you mean events?" in unknown.stderr
    wrong = both.run("messages", "events")
    assert (wrong.exit_code, "events: is a table in place" in wrong.stderr) == (2, True)
    assert "none of 2 streams and tables" in both.run("plan", "x*").stderr


def test_saved_plans_of_streams_and_tables_are_applied_once(tmp_path: Path, lake: Commands) -> None:
    both, file = listing(tmp_path, EVENTS, STREAM), str(tmp_path / "plan.json")
    assert both.run("plan", "-o", file, "--as-of", AS_OF).exit_code == 0
    assert Path(f"{file}.tables.json").exists()
    done = both.run("apply", file, "--yes")
    assert (done.exit_code, rows(tmp_path)) == (0, 30)
    again = both.run("apply", file, "--yes")
    assert again.exit_code == 75
    assert "is no longer in the table" in again.stderr
    alone = str(tmp_path / "alone.json")
    assert lake.run("plan", "events", "-o", alone).exit_code == 0
    assert lake.run("apply", alone, "--yes").exit_code == 0
    Path(f"{file}.tables.json").write_text("{}")
    assert "it is not as written" in both.run("apply", file, "--yes").stderr


def test_a_plan_of_streams_takes_no_tables_of_an_older_plan(tmp_path: Path, lake: Commands) -> None:
    both, file = listing(tmp_path, EVENTS, STREAM), str(tmp_path / "plan.json")
    both.run("plan", "-o", file, "--as-of", AS_OF)
    assert both.run("plan", "ORDERS", "-o", file).exit_code == 0
    assert both.run("apply", file, "--yes").exit_code == 0
    assert rows(tmp_path) == 100


def test_guards_and_instants_refuse_as_for_streams(tmp_path: Path, lake: Commands) -> None:
    guarded = listing(
        tmp_path, f"{EVENTS}    guards: {{max_removed_share: 50%, min_kept_rows: 10}}\n"
    )
    planned = guarded.run("plan", "--as-of", AS_OF)
    assert (
        "  guard: the pass removes 70 of 100 rows (70%), more than max_removed_share 50%: `apply` refuses it without "
        "--allow-large" in planned.stdout
    )
    refused = guarded.run("apply", "--yes", "--as-of", AS_OF)
    assert (refused.exit_code, rows(tmp_path)) == (4, 100)
    future = guarded.run("apply", "--yes", "--as-of", "2200-01-01")
    assert (future.exit_code, "--allow-future if you mean it" in future.stderr) == (4, True)
    done = guarded.run("apply", "--yes", "--allow-large", "--as-of", AS_OF)
    assert (done.exit_code, rows(tmp_path)) == (0, 30)
    assert "(lifted by --allow-large)" in done.stderr
    earlier = guarded.run("apply", "--yes", "--as-of", "2026-11-01")
    assert (earlier.exit_code, "--allow-rewind if you mean it" in earlier.stderr) == (4, True)


def test_a_table_that_is_gone_fails_alone(tmp_path: Path, lake: Commands) -> None:
    other = EVENTS.replace("events", "other")
    both = listing(tmp_path, EVENTS + other)
    done = both.run("apply", "--yes", "--as-of", AS_OF)
    assert (done.exit_code, rows(tmp_path)) == (5, 30)
    assert "this is no Delta table" in done.stderr
    assert both.run("plan", "other").exit_code == 2
    [_, failed] = json.loads(both.run("--format", "json", "apply", "--yes").stdout)["tables"]
    assert (failed["table"], failed["removed_rows"], failed["error"]["exit_code"]) == (
        "other",
        0,
        2,
    )


def test_a_budget_takes_the_most_overdue_and_leaves_the_others(
    tmp_path: Path, lake: Commands
) -> None:
    later = EVENTS.replace("events", "later").replace("30d", "95d")
    ats = pa.array([NOW - DAY * age for age in range(100)], pa.int64())
    write_deltalake(tmp_path / "lake" / "later", pa.table({"at": ats}))
    both = listing(tmp_path, later + EVENTS, STREAM)
    both.run("publish", "ORDERS", stdin='{"subject": "orders.a", "data": ""}')
    words = ("apply", "--yes", "--as-of", AS_OF, "--max-bytes", "1")
    done = both.run("--format", "json", *words)
    events, last = json.loads(done.stdout)["tables"]
    assert (events["table"], events["removed_rows"], "left" in events) == ("events", 70, False)
    assert (last["table"], last["left"]) == (
        "later",
        {"budget": "--max-bytes", "since_ns": None, "rows_at_least": 0},
    )
    assert "1 stream and 1 table left for the next run (--max-bytes is spent)" in done.stderr
    [left] = json.loads(done.stdout)["streams"]
    assert left["left"]["messages_at_least"] == 0
    nothing = parsed(lake, "apply", "--yes", "--as-of", AS_OF, "--max-bytes", "0")
    assert nothing["tables"][0]["left"]["budget"] == "--max-bytes"


def test_without_yes_it_asks_and_off_a_terminal_it_is_refused(lake: Commands) -> None:
    refused = lake.run("apply")
    assert (refused.exit_code, "repeat it with --yes" in refused.stderr) == (2, True)


def test_reclaim_says_what_it_keeps_until_when(tmp_path: Path, lake: Commands) -> None:
    lake.run("apply", "--yes", "--as-of", AS_OF)
    files = len(list((tmp_path / "lake" / "events").glob("*.parquet")))
    done = lake.run("reclaim", "--yes")
    assert done.stdout.startswith("events: nothing to delete, grace 7d\n  kept: dead for less than")
    assert len(list((tmp_path / "lake" / "events").glob("*.parquet"))) == files
    assert parsed(lake, "reclaim")["tables"][0]["staying"]["grace"]["files"] == 4


def test_a_name_is_that_of_a_table_or_of_a_stream(tmp_path: Path, lake: Commands) -> None:
    written = lake.run("publish", "events", stdin='{"subject": "a", "data": ""}')
    assert written.exit_code == 2
    assert "is a table in place, and this is for streams" in written.stderr
    assert not (tmp_path / "w" / "streams").exists()
    listing(tmp_path, EVENTS.replace("name: events", "name: clicks"))
    assert lake.run("publish", "events", stdin='{"subject": "a", "data": ""}').exit_code == 0
    listing(tmp_path, EVENTS)
    planned = lake.run("plan", "events")
    assert planned.exit_code == 2
    assert "the table has the name of a stream" in planned.stderr
    assert rows(tmp_path) == 100


def findings(lake: Commands) -> dict[str, Finding]:
    """The doctor's findings about `events`, by check."""
    opened = open_warehouse(lake.folder).table("events").opened
    return {finding.check: finding for finding in check_table(opened)}


def test_the_doctor_examines_tables(tmp_path: Path, lake: Commands) -> None:
    lake.run("apply", "--yes", "--as-of", AS_OF)
    done = lake.run("--format", "json", "doctor")
    assert (done.exit_code, "no streams" in done.stdout) == (0, False)
    healthy = [each for each in json.loads(done.stdout) if each["table"] == "events"]
    checks = ["table", "columns", "grace", "runs", "leftovers", "leases"]
    assert [(each["check"], each["result"]) for each in healthy] == [
        (each, "ok") for each in checks
    ]
    history = history_of(str(lake.folder), "events")
    [outcome] = history.outcomes()
    Path(history.done_location(outcome.run)).unlink()
    assert findings(lake)["runs"].result == "warning"
    assert isinstance(outcome, TableRun)
    staged = [*outcome.staged, "stray.parquet"]
    history.finish(outcome.updated(status=UNKNOWN, staged=staged))
    assert findings(lake)["leftovers"].result == "ok"
    (tmp_path / "lake" / "events" / "stray.parquet").write_bytes(b"1")
    assert findings(lake)["leftovers"].detail.endswith("lake/events/stray.parquet")
    longer = findings(listing(tmp_path, f"{EVENTS}    grace: 90d\n"))["grace"]
    assert (longer.result, "after 7d" in longer.detail) == ("warning", True)
    assert findings(listing(tmp_path, f"{EVENTS}    grace: 7d\n"))["grace"].result == "ok"


def test_the_doctor_wants_sizes_to_be_integers(tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array([1], pa.int64()), "who": ["ada"]})
    write_deltalake(tmp_path / "lake" / "events", rows)
    wrong = findings(listing(tmp_path, f"{EVENTS}    max_bytes: 1GiB\n    size: who\n"))["columns"]
    assert (wrong.result, "type string" in wrong.detail) == ("problem", True)
    right = findings(listing(tmp_path, f"{EVENTS}    max_bytes: 1GiB\n    size: at\n"))["columns"]
    assert (right.result, right.detail[:9]) == ("ok", "1 column ")


@pytest.mark.parametrize(
    ("entry", "check", "detail"),
    [
        (EVENTS.replace("    unit: s\n", ""), "columns", "no time by itself"),
        (f"{EVENTS}    key: who\n", "columns", "no column who"),
        (f"{EVENTS}    policies: [{{where: {{at: [x]}}, max_age: 1d}}]\n", "columns", "where: at"),
        (EVENTS.replace("lake/events", "lake/none"), "table", "no Delta table"),
    ],
)
def test_the_doctor_says_what_would_refuse_a_pass(
    tmp_path: Path, lake: Commands, entry: str, check: str, detail: str
) -> None:
    wrong = findings(listing(tmp_path, entry))[check]
    assert (wrong.result, detail in wrong.detail) == ("problem", True), wrong
    assert wrong.remedy
    assert lake.run("plan").exit_code != 0


def test_lag_begins_when_a_file_is_due_after_the_last_pass(tmp_path: Path, lake: Commands) -> None:
    for entry in (tmp_path / "lake" / "events" / "_delta_log").glob("*.json"):
        entry.write_text(
            re.sub(r'"modificationTime":\d+', '"modificationTime":1', entry.read_text())
        )
    table = open_warehouse(lake.folder).table("events")
    assert table.state(NOW * SECOND).since_ns == (NOW - 50 * DAY) * SECOND
    assert table.state((NOW - 51 * DAY) * SECOND).since_ns is None
    late = lake.run("state", "--max-lag", "30d")
    assert (late.exit_code, "events: behind its limits for " in late.stderr) == (3, True)
    lake.run("apply", "--yes", "--as-of", AS_OF)
    state = table.state((NOW + 100 * DAY) * SECOND)
    assert state.since_ns == (NOW + 10 * DAY) * SECOND
    assert state.behind_ns((NOW + 11 * DAY) * SECOND) == DAY * SECOND
    assert lake.run("state", "--max-lag", "3650d").exit_code == 0


def test_state_says_what_is_due_when_and_which_tables_lag_the_longest(
    tmp_path: Path, lake: Commands
) -> None:
    table = open_warehouse(lake.folder).table("events")
    state = table.state(NOW * SECOND)
    assert (state.first_ts_ns, state.last_ts_ns) == ((NOW - 99 * DAY) * SECOND, NOW * SECOND)
    assert state.ahead.next_due_ns == NOW * SECOND
    now, *_, in_a_week, in_30_days = state.ahead.forecast
    assert (now.rows_at_least, now.rows_at_most) == (60, 80)
    assert (in_a_week.rows_at_least, in_a_week.rows_at_most) == (60, 80)
    assert (in_30_days.rows_at_least, in_30_days.rows_at_most) == (100, 100)
    early = table.state((NOW - 80 * DAY) * SECOND).ahead
    assert early.next_due_ns == (NOW - 69 * DAY) * SECOND
    assert [due.rows_at_most for due in early.forecast] == [0, 0, 0, 0, 20]
    shown = lake.run("state", "--due").stdout
    assert shown.startswith("events\n  due now: ")
    both = listing(tmp_path, EVENTS + EVENTS.replace("events", "gone"), STREAM)
    [gone, events] = json.loads(both.run("--format", "json", "state", "--top", "2").stdout)
    assert (gone["table"], events["table"], "error" in gone) == ("gone", "events", True)
    assert (events["format"], len(events["forecast"])) == ("delta", 5)
    behind = json.loads(both.run("--format", "json", "state", "--behind").stdout)
    assert [each["table"] for each in behind] == ["gone", "events"]


def test_metrics_have_tables_by_name(tmp_path: Path, lake: Commands) -> None:
    place = tmp_path / "m.prom"
    for limits in ("30d", "20d"):
        both = listing(tmp_path, EVENTS.replace("30d", limits), STREAM)
        done = both.run("apply", "--yes", "--as-of", AS_OF, "--metrics-file", str(place))
        assert done.exit_code == 0, done.stderr
    families = list(text_string_to_metric_families(place.read_text()))
    samples = {
        (sample.name.removeprefix("retention_table_"), sample.labels.get("rule")): sample.value
        for family in families
        for sample in family.samples
        if sample.labels.get("table") == "events"
    }
    assert {name: samples[name, None] for name in ("rows", "files", "exit_code", "left")} == {
        "rows": 20,
        "files": 1,
        "exit_code": 0,
        "left": 0,
    }
    assert samples["removed_rows", "max_age"] == 10
    assert samples["removed_rows_total", "max_age"] == 80
    assert samples["removed_bytes_total", None] > samples["removed_bytes", None] > 0
    assert samples["last_success_timestamp_seconds", None] > NOW
    assert samples["lag_seconds", None] >= 0
