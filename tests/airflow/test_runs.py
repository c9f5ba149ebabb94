"""Whole runs of the DAG on a warehouse of four streams, by Airflow's own `dag.test()`."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.airflow.slow import engines, slow_engine
from tests.airflow.world import World, load, until

STEPS = ("plan", "approve", "apply", "compact", "reclaim")
NONE = ("skipped",) * 5


@pytest.fixture(scope="module")
def client(home: Path) -> Any:
    """Airflow's public interface, in this process."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    client = TestClient(create_app(apps="core"))
    token = client.get("/auth/token").json()["access_token"]
    client.headers["Authorization"] = f"Bearer {token}"
    return client


def approve(_: str) -> str:
    """The answer of a person who approves of everything."""
    return "Approve"


def reject(_: str) -> str:
    """The answer of a person who approves of nothing."""
    return "Reject"


@contextmanager
def answering(
    client: Any, answer: Callable[[str], str | None], first: Callable[[], None] = lambda: None
) -> Iterator[list[Any]]:
    """Answer Airflow's questions; yields the answered ones.

    Args:
        client: Airflow's public interface.
        answer: a question's subject → `Approve` or `Reject`; None: the question stays open.
        first: an act while the question waits.
    """
    questions: list[Any] = []
    ended = threading.Event()
    waiting = "/api/v2/dags/~/dagRuns/~/hitlDetails?response_received=false"

    def answer_all() -> None:
        while not ended.wait(1):
            for question in client.get(waiting).json().get("hitl_details", []):
                ti = question["task_instance"]
                option = answer(question["subject"])
                # An answer before the task waits is recorded, and never resumes it.
                if option is None or ti["state"] != "awaiting_input":
                    continue
                first()
                run = f"/api/v2/dags/{ti['dag_id']}/dagRuns/{ti['dag_run_id']}"
                where = f"{run}/taskInstances/{ti['task_id']}/{ti['map_index']}/hitlDetails"
                client.patch(where, json={"chosen_options": [option], "params_input": {}})
                questions.append(question)

    thread = threading.Thread(target=answer_all, daemon=True)
    thread.start()
    try:
        yield questions
    finally:
        ended.set()
        thread.join()


def states(run: Any) -> dict[str, tuple[str, ...]]:
    """The states of each stream's tasks, in the order of the steps."""
    instances = [ti for ti in run.get_task_instances() if "." in ti.task_id]
    by_task = {ti.task_id: str(ti.state) for ti in instances}
    streams = dict.fromkeys(task.rpartition(".")[0] for task in by_task)
    return {name: tuple(by_task[f"{name}.{step}"] for step in STEPS) for name in streams}


def returned(client: Any, run: Any, task: str) -> dict[str, Any]:
    """The counts of a task in XCom."""
    return dict(entry_of(client, run, task, "return_value"))


def entry_of(client: Any, run: Any, task: str, key: str) -> Any:
    """The XCom entry of a task."""
    where = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{task}/xcomEntries/{key}"
    return client.get(where, params={"deserialize": True}).json()["value"]


def test_a_run_does_what_each_stream_needs(
    home: Path, world: World, client: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    dag = load(world.fill().write_dag_file(home / "dags"))
    with answering(client, approve) as questions:
        run = dag.test()
    assert states(run) == {
        "ORDERS": ("success", "skipped", "success", "success", "success"),
        "QUIET": NONE,
        "BROKEN": ("failed", *("upstream_failed",) * 4),
        "WAITS": ("success", "success", "success", "skipped", "success"),
    }
    assert run.state == "failed"
    [question] = questions
    assert question["subject"] == "Retention: remove 3 messages of WAITS?"
    for row in ("by `max_age` | 3", "sequences | 1 to 3", "oldest | 2020-09-13 12:26:40 UTC"):
        assert f"| {row} |" in question["body"]
    assert f"{world.undo('RUN')}` restores the messages" in question["body"]
    assert {name: world.messages(name) for name in ("ORDERS", "QUIET", "WAITS")} == {
        "ORDERS": 4,
        "QUIET": 2,
        "WAITS": 0,
    }
    plan, applied = (returned(client, run, f"WAITS.{step}") for step in ("plan", "apply"))
    assert plan["as_of_ns"] == applied["as_of_ns"]
    assert (applied["messages"], applied["by_rule"]) == (3, {"max_age": 3})
    assert applied["undo"] == world.undo(applied["run"])
    assert entry_of(client, run, "QUIET.apply", "skipped") == "QUIET: nothing to do"
    report = json.loads(Path(applied["report"]).read_text(encoding="utf-8"))
    assert report["streams"][0]["removed_messages"] == 3
    assert returned(client, run, "QUIET.plan")["messages"] == 0
    logged = capfd.readouterr()
    assert "restore it from a copy (exit code 6)" in logged.out + logged.err
    [record] = [run for run in world.runs("WAITS") if run["kind"] == "apply"]
    assert record["who"]["scheduler"]["airflow"]["task_id"] == "WAITS.apply"


def test_tasks_link_the_page_about_their_stream(home: Path, world: World, client: Any) -> None:
    pages = "https://lake.example.com/reports"
    dag = load(world.fill("ORDERS", "WAITS").write_dag_file(home / "dags", pages=repr(pages)))
    with answering(client, approve) as questions:
        run = dag.test(run_conf={"streams": ["ORDERS", "WAITS"]})
    for task in ("ORDERS.plan", "ORDERS.apply", "WAITS.plan", "WAITS.apply"):
        link = str(entry_of(client, run, task, "_link_PageLink"))
        assert link.startswith(f"{pages}/retention/")
        page = Path(world.reports, unquote(link.removeprefix(f"{pages}/")))
        assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    [question] = questions
    assert entry_of(client, run, "WAITS.plan", "_link_PageLink") in question["body"]
    where = f"/api/v2/dags/retention/dagRuns/{run.run_id}/taskInstances/ORDERS"
    # The server looks for a changed DAG only twice a minute.
    client.app.state.dag_bag.clear_cache()
    shown = {step: client.get(f"{where}.{step}/links").json() for step in ("apply", "reclaim")}
    link = entry_of(client, run, "ORDERS.apply", "_link_PageLink")
    assert shown["apply"]["extra_links"] == {"Retention report": link}
    assert shown["reclaim"]["extra_links"] == {}


def test_a_plan_that_is_rejected_removes_nothing(home: Path, world: World, client: Any) -> None:
    dag = load(world.fill("WAITS").write_dag_file(home / "dags"))
    with answering(client, reject):
        run = dag.test(run_conf={"streams": ["WAITS"]})
    assert states(run) == {
        "ORDERS": NONE,
        "QUIET": NONE,
        "BROKEN": NONE,
        "WAITS": ("success", "success", "skipped", "skipped", "skipped"),
    }
    assert (run.state, world.messages("WAITS")) == ("success", 3)
    for step in ("apply", "compact", "reclaim"):
        reason = entry_of(client, run, f"WAITS.{step}", "skipped")
        assert re.fullmatch(r"WAITS: .+ has rejected the plan; the stream is kept as it is", reason)


def test_nobody_is_asked_about_what_a_guard_refuses_unless_it_is_lifted_with_a_reason(
    home: Path, world: World, client: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    dag = load(world.fill("WAITS").write_dag_file(home / "dags"))
    text = world.config.read_text(encoding="utf-8")
    guards = "approve: true, guards: {min_kept_messages: 1}"
    world.config.write_text(text.replace("approve: true", guards), encoding="utf-8")
    with answering(client, approve) as questions:
        run = dag.test(run_conf={"streams": ["WAITS"]})
        assert states(run)["WAITS"] == ("failed", *("upstream_failed",) * 4)
        assert questions == []
        refused = returned(client, run, "WAITS.plan")["refused"]
        assert refused.startswith("WAITS: the pass keeps 0 of 3 messages, fewer than")
        reason = "the year 2020 was a test"
        run = dag.test(run_conf={"streams": ["WAITS"], "allow_large": reason})
    assert states(run)["WAITS"][:3] == ("success",) * 3
    assert (len(questions), world.messages("WAITS")) == (1, 0)
    [record] = [record for record in world.runs("WAITS") if record["kind"] == "apply"]
    assert record["reason"] == reason
    logged = capfd.readouterr()
    assert f"apply would refuse this plan: {refused}" in logged.out + logged.err


def test_a_misspelt_parameter_fails_and_does_nothing(
    home: Path, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    dag = load(world.fill("ORDERS").write_dag_file(home / "dags"))
    run = dag.test(run_conf={"dryrun": True})
    assert set(states(run).values()) == {("failed", *("upstream_failed",) * 4)}
    assert world.messages("ORDERS") == 7
    logged = capfd.readouterr()
    assert "did you mean `dry_run`" in logged.out + logged.err


def test_another_try_updates_the_asset_of_what_the_first_has_committed(
    home: Path, world: World, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowException

    from airflow_dags import running
    from airflow_dags.ending import read_ending

    read = read_ending
    lost: list[Path] = []

    def lost_once(code: int, path: Path) -> Any:
        if path.name.startswith("ORDERS.apply") and not lost:
            lost.append(path)
            raise AirflowException("the worker goes away")
        return read(code, path)

    monkeypatch.setattr(running, "read_ending", lost_once)
    dag = load(world.fill("ORDERS").write_dag_file(home / "dags"))
    run = dag.test(run_conf={"streams": ["ORDERS"]})
    assert states(run)["ORDERS"] == ("success", "skipped", "success", "success", "success")
    applied = returned(client, run, "ORDERS.apply")
    assert (applied["messages"], applied["is_of_earlier_try"], len(lost)) == (3, True, 1)
    events = client.get("/api/v2/assets/events", params={"source_run_id": run.run_id}).json()
    [event] = [each for each in events["asset_events"] if each["source_run_id"] == run.run_id]
    assert event["extra"]["run"] == applied["run"]


def test_no_more_goes_than_was_approved(
    home: Path, world: World, client: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    dag = load(world.fill("WAITS").write_dag_file(home / "dags"))
    with answering(client, approve, lambda: world.publish("WAITS", old=2)):
        run = dag.test(run_conf={"streams": ["WAITS"]})
    assert states(run)["WAITS"] == ("success", "success", "failed", *("upstream_failed",) * 2)
    assert world.messages("WAITS") == 5
    logged = capfd.readouterr()
    sentence = (
        r"would remove more than was approved \(3 messages, \d+ bytes\): 5 instead of 3 by max_age"
    )
    assert re.search(sentence, logged.out + logged.err)


def test_a_dry_run_plans_and_does_nothing_else(home: Path, world: World, client: Any) -> None:
    dag = load(world.fill("ORDERS").write_dag_file(home / "dags"))
    run = dag.test(run_conf={"streams": ["ORDERS"], "dry_run": True})
    assert states(run)["ORDERS"] == ("success", *("skipped",) * 4)
    assert returned(client, run, "ORDERS.plan")["messages"] == 3
    assert world.messages("ORDERS") == 7


def test_an_instant_that_is_none_fails_with_its_sentence(
    home: Path, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    dag = load(world.fill("ORDERS").write_dag_file(home / "dags"))
    run = dag.test(run_conf={"streams": ["ORDERS"], "as_of": "tomorrow"})
    assert states(run)["ORDERS"] == ("failed", *("upstream_failed",) * 4)
    logged = capfd.readouterr()
    assert "'tomorrow' is not an instant" in logged.out + logged.err


def test_a_task_that_takes_too_long_ends_its_job(
    home: Path, world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    variables = slow_engine(tmp_path / "slow")
    world.fill("ORDERS")
    dag = load(world.write_dag_file(home / "dags", seconds=5, variables=variables))
    run = dag.test(run_conf={"streams": ["ORDERS"]})
    assert states(run)["ORDERS"] == ("failed", *("upstream_failed",) * 4)
    logged = capfd.readouterr()
    assert "ORDERS: plan did not finish within 0:00:05 and was stopped" in logged.out + logged.err
    until(lambda: not engines(str(world.reports)), seconds=20)


def test_an_environment_without_python_is_one_sentence(
    home: Path, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.fill("NONE")
    file = world.write_dag_file(home / "dags")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("/.venv", "/nowhere"), encoding="utf-8")
    run = load(file).test(run_conf={"streams": ["ORDERS"]})
    assert states(run)["ORDERS"][0] == "failed"
    logged = capfd.readouterr()
    assert "/nowhere/bin/python: is not on this worker" in logged.out + logged.err


@pytest.mark.parametrize("batch", [None, 2])
def test_a_verification_fails_with_the_first_damage(
    home: Path, world: World, client: Any, batch: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "airflow_dags")
    world.fill("ORDERS", "QUIET")
    [damaged] = world.folder.glob("streams/QUIET/messages/**/*.parquet")
    content = bytearray(damaged.read_bytes())
    content[60] ^= 1
    damaged.write_bytes(content)
    dag = load(world.write_dag_file(home / "dags", batch=batch, verify="100%"))
    run = dag.test(run_conf={"streams": ["ORDERS", "QUIET"]})
    assert run.state == "failed"
    assert re.search(rf"QUIET.*{damaged.name}.*\(exit code 6\)", caplog.text)
    if batch is None:
        verified = returned(client, run, "ORDERS.verify")
        assert (verified["verdict"], verified["files"]) == ("ok", 1)
    else:
        counts = entry_of(client, run, "batch-1.verify", "counts")
        assert (counts["failed"], counts["files"]) == (1, 2)
