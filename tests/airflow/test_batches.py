"""Runs of a DAG with many streams per task, by Airflow's own `dag.test()`."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.test_runs import answering, approve, client, entry_of  # noqa: F401  (a fixture)
from tests.airflow.world import ENGINE, HOLDING, ROOT, World, load


def states(run: Any) -> dict[str, Any]:
    """The state of each task of a run by id; for a mapped task, the state per stream."""
    found: dict[str, Any] = {}
    for ti in run.get_task_instances():
        if ti.map_index < 0:
            found[ti.task_id] = str(ti.state)
        else:
            found.setdefault(ti.task_id, {})[ti.rendered_map_index] = str(ti.state)
    return found


def events(client: Any, run: Any) -> dict[str, list[int]]:  # noqa: F811
    """The numbers of removed messages in the assets updated by a run."""
    told: dict[str, list[int]] = {}
    params = {"source_run_id": run.run_id, "limit": 100}
    for event in client.get("/api/v2/assets/events", params=params).json()["asset_events"]:
        if event["source_run_id"] == run.run_id:
            told.setdefault(event["name"], []).append(event["extra"]["messages"])
    return told


def reports(world: World) -> list[str]:
    """The reports of jobs, one for each process of the engine."""
    written = world.reports.glob("retention/*/*.[0-9].json")
    return sorted(path.name for path in written)


def test_a_batch_does_what_each_stream_needs(
    home: Path,
    world: World,
    client: Any,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "airflow_dags")
    dag = load(world.fill().write_dag_file(home / "dags", batch=4))
    with answering(client, approve) as questions:
        run = dag.test()
    assert states(run) == {
        "configuration": "success",
        "unlisted": "success",
        **dict.fromkeys((f"batch-1.{step}" for step in ("apply", "plan")), "success"),
        "batch-1.reclaim": "success",
        "batch-1.outcomes": "success",
        "batch-1.failed": {"BROKEN": "failed"},
        "batch-1.asked.approve": {"WAITS": "success"},
        "batch-1.asked.apply": {"WAITS": "success"},
        "batch-1.asked.compact": {"WAITS": "skipped"},
        "batch-1.asked.reclaim": {"WAITS": "success"},
    }
    assert run.state == "failed"
    [question] = questions
    assert question["subject"] == "Retention: remove 3 messages of WAITS?"
    left = {name: world.messages(name) for name in ("ORDERS", "QUIET", "WAITS")}
    assert left == {"ORDERS": 4, "QUIET": 2, "WAITS": 0}
    # QUIET lost no messages, and its asset is not updated.
    assert events(client, run) == {"retention/ORDERS": [3], "retention/WAITS": [3]}
    counts = entry_of(client, run, "batch-1.apply", "counts")
    assert (counts["streams"], counts["changed"], counts["messages"]) == (4, 1, 3)
    assert (counts["failed"], counts["refused"]) == (1, 1)
    applied = counts["by_stream"]["ORDERS"]
    assert applied["undo"] == world.undo(applied["run"])
    assert len(reports(world)) == 3 + 3
    sentence = r"retention batch-1\.failed failed: BROKEN: .*restore it from a copy \(exit code 6\)"
    assert re.search(sentence, caplog.text)
    assert re.search(r"WAITS +a person is asked: would remove 3 messages", caplog.text)
    # After a clear or a new start, nothing is done twice, and no asset is updated twice.
    again = dag.test(run_conf={"streams": ["ORDERS", "WAITS"]})
    assert states(again)["batch-1.apply"] == "success"
    assert events(client, again) == {}


def test_a_dry_run_of_one_stream_starts_one_process(
    home: Path,
    world: World,
    client: Any,  # noqa: F811
) -> None:
    dag = load(world.fill("ORDERS").write_dag_file(home / "dags", batch=2))
    run = dag.test(run_conf={"streams": ["ORDERS"], "dry_run": True})
    done = [task for task, state in states(run).items() if state == "success"]
    assert sorted(done) == ["batch-1.outcomes", "batch-1.plan", "configuration"]
    assert (run.state, set(states(run).values())) == ("success", {"success", "skipped"})
    assert reports(world) == ["batch-1.plan.1.json"]
    counts = entry_of(client, run, "batch-1.plan", "counts")
    assert list(counts["by_stream"]) == ["ORDERS"]
    assert world.messages("ORDERS") == 7


def test_a_batch_of_which_every_stream_fails_says_so_also_in_a_dry_run(
    home: Path, world: World
) -> None:
    file = world.fill("BROKEN").write_dag_file(home / "dags", batch=2)
    for conf in ({"dry_run": True}, {}):
        # A DAG keeps the parameters of its last `test()`.
        run = load(file).test(run_conf={"streams": ["BROKEN"], **conf})
        assert (run.state, states(run)["batch-2.failed"]) == ("failed", {"BROKEN": "failed"})
    assert reports(world) == ["batch-2.apply.1.json", "batch-2.plan.1.json"]


def test_a_busy_stream_is_tried_again_without_the_others(
    home: Path,
    world: World,
    client: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from airflow_dags import running
    from airflow_dags.ending import read_ending

    read = read_ending
    world.fill("ORDERS").publish("QUIET", old=2)
    holding = subprocess.Popen(
        [ENGINE / "bin" / "python", "-c", HOLDING, world.folder / "streams" / "QUIET"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def released(code: int, path: Path) -> Any:
        if path.name == "batch-1.apply.1.json":
            holding.communicate()
        return read(code, path)

    monkeypatch.setattr(running, "read_ending", released)
    dag = load(world.write_dag_file(home / "dags", batch=2))
    with holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        run = dag.test(run_conf={"streams": ["ORDERS", "QUIET"]})
    assert run.state == "success"
    assert states(run)["batch-1.apply"] == "success"
    assert (world.messages("ORDERS"), world.messages("QUIET")) == (4, 0)
    [second] = world.reports.glob("retention/*/batch-1.apply.2.json")
    entries = json.loads(second.read_text(encoding="utf-8"))["streams"]
    assert [entry["stream"] for entry in entries] == ["QUIET"]
    assert events(client, run) == {"retention/ORDERS": [3], "retention/QUIET": [2]}
    sentence = "batch-1: 1 of 2 streams are tried again without the others; the first: QUIET: "
    assert sentence in caplog.text
