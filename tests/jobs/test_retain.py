from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from retention.engines.spark.submit import install_front
from retention.stores.lease import lease
from tests.support.jobs import run_job
from tests.support.sandboxes import NOW, ORDERS, configured, lines, opened

ROOT = Path(__file__).parents[2]
OTHER = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}
PAST = "2026-01-01T00:00:00Z"
LOCAL = ("--engine", "local")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """ORDERS with messages of the year 2020, OTHER with five."""
    warehouse = opened(tmp_path, ORDERS, OTHER)
    warehouse.stream("ORDERS").publish(lines(48, first_ns=1_600_000_000 * 10**9))
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    return tmp_path


def run(command: list[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def retain(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "retention.jobs.retain"], folder, *arguments)


def test_all_streams_are_done_and_reported(folder: Path) -> None:
    report = folder / "report.json"
    done = retain(folder, *LOCAL, "--as-of", PAST, "--report-file", str(report))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("retain: 2 streams done, 0 failed; removed 50 messages (")
    assert len(done.stdout.splitlines()) == 1
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["format_version"] == 1
    assert document["as_of_ns"] == 1_767_225_600 * 10**9
    assert [entry["removed_messages"] for entry in document["streams"]] == [48, 2]
    assert [path.name for path in folder.iterdir() if path.name.endswith(".tmp")] == []


def test_named_streams_alone_are_done(folder: Path) -> None:
    done = run_job(
        "retain", folder, *LOCAL, "--as-of", PAST, "--warehouse", str(folder), "--stream", "OTHER"
    )
    assert "1 stream done, 0 failed; removed 2 messages" in done.stdout


def test_one_failure_of_several_ends_with_five_and_is_in_the_report(folder: Path) -> None:
    streams = ("--stream", "NONE", "--stream", "OTHER")
    done = run_job(
        "retain", folder, *LOCAL, "--as-of", PAST, *streams, "--report-file", "report.json"
    )
    assert done.returncode == 5
    assert "retain: NONE: there is no such stream" in done.stderr
    missing, other = json.loads((folder / "report.json").read_text(encoding="utf-8"))["streams"]
    assert missing["error"]["exit_code"] == 2
    assert other["removed_messages"] == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--as-of", "tomorrow"), 2),
        (("--as-of", str(NOW + 10**20)), 2),
        (("--as-of", "2200-01-01T00:00:00Z", "--stream", "ORDERS"), 4),
        (("--config", "missing.yaml"), 2),
        (("--config", "retention.yaml", "--warehouse", "."), 2),
        (("--stream", "NONE"), 2),
        (("--oops",), 2),
    ],
)
def test_exit_codes_are_those_of_the_commands(
    folder: Path, arguments: tuple[str, ...], code: int
) -> None:
    done = run_job("retain", folder, *LOCAL, *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_where_an_error_came_from_is_shown_on_demand(folder: Path) -> None:
    wanted = (*LOCAL, "--as-of", PAST, "--stream", "NONE", "--stream", "OTHER")
    done = run_job("retain", folder, *wanted, "--debug")
    assert done.stderr.startswith("Traceback (most recent call last)")
    assert done.stderr.splitlines()[-1].startswith("retain: NONE: there is no such stream")
    done = run_job("retain", folder, *LOCAL, "--config", "missing.yaml", "--debug")
    assert "Traceback (most recent call last)" in done.stderr
    assert len(run_job("retain", folder, *wanted).stderr.splitlines()) == 1


def test_a_held_lease_ends_with_seventy_five_although_the_other_streams_are_done(
    folder: Path,
) -> None:
    with lease(str(folder / "streams" / "OTHER"), "maintenance", lambda: NOW):
        done = run_job("retain", folder, *LOCAL, "--as-of", PAST)
    assert done.returncode == 75
    assert "1 stream done, 1 failed" in done.stdout


@pytest.mark.spark
@pytest.mark.always
def test_it_runs_under_spark_submit_from_anywhere_without_an_environment(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    configured(folder, ORDERS, {**OTHER, "max_msgs": 4})
    prefix = tmp_path_factory.mktemp("prefix")
    (prefix / "bin").mkdir()
    done = subprocess.run(
        [
            install_front(prefix),
            *("--master", "local[1]", ROOT / "jobs" / "retain.py"),
            *("--config", folder / "retention.yaml", "--as-of", PAST, "--stream", "OTHER"),
            *("--report-file", folder / "report.json"),
        ],
        cwd="/",
        env={"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("retain: 1 stream done, 0 failed; removed 1 message (")
    (entry,) = json.loads((folder / "report.json").read_text(encoding="utf-8"))["streams"]
    assert entry["removed_messages"] == 1


def test_a_job_without_rows_for_spark_loads_neither_pandas_nor_spark(folder: Path) -> None:
    code = (
        "import sys; from retention.jobs.retain import main; assert main() == 0; "
        "print(*sorted({'pandas', 'pyspark', 'py4j'} & set(sys.modules)))"
    )
    done = run([sys.executable, "-c", code], folder, *LOCAL)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "")


def test_a_guard_refuses_the_job_and_is_lifted_once(tmp_path: Path) -> None:
    guards = {"max_removed_share": 0, "max_removed_bytes": {"limit": 1, "then": "warn"}}
    opened(tmp_path, OTHER | {"guards": guards}).stream("OTHER").publish(lines(5, "other.a"))
    refused = run_job("retain", tmp_path, *LOCAL, "--as-of", PAST)
    assert refused.returncode == 4
    assert "OTHER: the pass removes 2 of 5 messages (40%)" in refused.stderr
    done = run_job("retain", tmp_path, *LOCAL, "--as-of", PAST, "--allow-large")
    assert done.returncode == 0, done.stderr
    assert "retain: OTHER: guard: the pass removes 2 of 5 messages (40%)" in done.stderr
    assert "(only a warning)" in done.stderr
