"""The jobs on tables in place: planned, approved by a person, applied once, and reclaimed; with their reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.support.jobs import Ended, run_job

DAY = 86_400
AS_OF = "2026-11-20T00:00:00Z"
NOW = 1_795_132_800
TABLE = {"name": "events", "location": "lake", "time": "at", "unit": "s", "max_age": "30d"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A configuration with one table of 100 rows, a row a day, and no stream."""
    ats = pa.array([NOW - DAY * age for age in range(100)], pa.int64())
    write_deltalake(tmp_path / "lake", pa.table({"at": ats}))
    configure(tmp_path, approve=True, tags=["web"])
    return tmp_path


def configure(folder: Path, **settings: Any) -> None:
    config = {"warehouse": "w", "tables": [TABLE | settings]}
    (folder / "retention.yaml").write_text(json.dumps(config))


def rows(folder: Path) -> int:
    return DeltaTable(folder / "lake").to_pyarrow_table().num_rows


def job(folder: Path, name: str, *arguments: str) -> tuple[Ended, dict[str, Any]]:
    engine = () if name == "reclaim" else ("--engine", "local")
    report = folder / f"{name}.json"
    done = run_job(name, folder, *engine, "--report-file", str(report), *arguments)
    return done, json.loads(report.read_text())


def test_a_planned_report_is_approved_and_applied_once(folder: Path) -> None:
    planned, report = job(folder, "plan", "--as-of", AS_OF)
    assert planned.stdout.startswith(
        "plan: 0 streams and 1 table done, 0 failed; would remove 0 messages (0 bytes) and 70 rows; "
    )
    [entry] = report["tables"]
    assert (entry["table"], entry["would_change"], entry["refused"]) == ("events", True, None)
    assert (
        entry["needs_approval"]
        == "would remove 70 rows, and `approve` lets a job remove none by itself"
    )
    alone, failed = job(folder, "retain", "--as-of", AS_OF)
    assert (alone.returncode, rows(folder)) == (4, 100)
    assert failed["tables"][0]["error"]["exit_code"] == 4
    approved = ("--approved", str(folder / "plan.json"))
    done, applied = job(folder, "retain", *approved)
    assert (done.returncode, rows(folder)) == (0, 30)
    assert "1 table done, 0 failed; removed 0 messages (0 bytes) and 70 rows; " in done.stdout
    again, repeated = job(folder, "retain", *approved)
    assert (again.returncode, rows(folder)) == (0, 30)
    assert repeated["tables"][0]["spent_by"] == applied["tables"][0]["run"]
    assert "events: the approved report was applied before" in again.stderr


def test_tags_select_tables_and_guards_are_lifted_with_a_reason(folder: Path) -> None:
    configure(folder, guards={"max_removed_share": 50}, tags=["web"])
    refused, _ = job(folder, "retain", "--as-of", AS_OF, "--tag", "web")
    assert (refused.returncode, rows(folder)) == (4, 100)
    _, planned = job(folder, "plan", "--as-of", AS_OF)
    assert "more than max_removed_share 50%" in planned["tables"][0]["refused"]
    lifted = ("--allow-large", "--reason", "a move")
    done, _ = job(folder, "retain", "--as-of", AS_OF, *lifted)
    assert (done.returncode, rows(folder)) == (0, 30)
    assert run_job("retain", folder, "--engine", "local", "--tag", "other").returncode == 2


def test_a_budget_and_a_reclaim_concern_tables(folder: Path) -> None:
    configure(folder)
    left, report = job(folder, "retain", "--as-of", AS_OF, "--max-time", "0s")
    assert (left.returncode, report["tables"][0]["left"]) == (
        0,
        {"budget": "--max-time", "since_ns": None, "rows_at_least": 0},
    )
    assert "0 tables done" in left.stdout
    assert "; 1 table left for the next run (--max-time is spent)" in left.stdout
    job(folder, "retain", "--as-of", AS_OF)
    done, reclaimed = job(folder, "reclaim")
    assert (done.returncode, reclaimed["tables"][0]["files"]) == (0, 0)
    assert reclaimed["tables"][0]["staying"]["grace"]["files"] == 1


def test_another_try_of_a_task_finds_what_the_first_has_committed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(folder)
    names = {"DAG_ID": "nightly", "TASK_ID": "events.apply", "DAG_RUN_ID": "one"}

    def entry(number: str, **changed: str) -> dict[str, Any]:
        for name, value in (names | changed | {"TRY_NUMBER": number}).items():
            monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)
        return dict(job(folder, "retain", "--as-of", AS_OF)[1]["tables"][0])

    first, second = entry("1"), entry("2")
    assert (first["removed_rows"], "earlier_try" in first, second["removed_rows"]) == (70, False, 0)
    assert second["earlier_try"] == {
        name: first[name] for name in ("table", "run", "removed_rows", "removed_bytes", "by_rule")
    }
    assert "earlier_try" not in entry("1", DAG_RUN_ID="two")
