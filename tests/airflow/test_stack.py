"""A full Airflow: scheduler, DAG processor, triggerer and API server, on a warehouse of four streams."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.airflow.slow import engines, slow_engine
from tests.airflow.world import ENGINE, HOLDING, ROOT, World, until

DAG = "/api/v2/dags/retention"
OTHER = """
from airflow.sdk import DAG, task
with DAG("other") as dag:
    task(lambda: None, task_id="first")() >> task(lambda: None, task_id="last")()
"""
"""A DAG file of somebody else."""
HESITATION_S = 5
"""Airflow treats an answer before the executor's final event of the asking task as a failure, and asks again."""


@dataclass(frozen=True)
class Stack:
    """A running Airflow, and its warehouse."""

    client: httpx.Client
    world: World
    dags: Path

    def get(self, where: str, **params: Any) -> Any:
        """The answer of the public interface."""
        done = _asked(lambda: self.client.get(where, params=params))
        assert done.status_code == 200, done.text
        return done.json()

    def post(self, where: str, **body: Any) -> Any:
        """The answer to a modifying request."""
        done = _asked(lambda: self.client.post(where, json=body))
        assert done.status_code < 300, done.text
        return done.json()

    def patch(self, where: str, **body: Any) -> None:
        """Modify what is there."""
        done = _asked(lambda: self.client.patch(where, json=body))
        assert done.status_code == httpx.codes.OK, done.text

    def add_dag_file(self, name: str, text: str) -> str:
        """Add a file with an enabled DAG; returns its URL path."""
        (self.dags / f"{name}.py").write_text(text, encoding="utf-8")
        dag = f"/api/v2/dags/{name}"
        until(lambda: self.client.get(dag).status_code == httpx.codes.OK)
        self.patch(dag, is_paused=False)
        return dag

    def start(self, dag: str = DAG, **conf: Any) -> str:
        """Start a run manually; returns its URL path."""
        run = self.post(f"{dag}/dagRuns", logical_date=None, conf=conf)
        return f"{dag}/dagRuns/{run['dag_run_id']}"

    def states(self, run: str) -> dict[str, str | None]:
        """The state of each task of a run."""
        tasks = self.get(f"{run}/taskInstances", limit=100)["task_instances"]
        return {task["task_id"]: task["state"] for task in tasks}

    def ended(self, run: str, option: str = "Approve") -> dict[str, str | None]:
        """The final states of a run's tasks; repeated questions get the same answer."""

        def is_over() -> bool:
            self.answering(run, option)
            return self.get(run)["state"] in ("success", "failed")

        until(is_over)
        return self.states(run)

    def answering(self, run: str, option: str = "Approve") -> dict[str, str | None]:
        """The states of a run's tasks, after answers to repeated questions."""
        for task in self.get(f"{run}/taskInstances", limit=100)["task_instances"]:
            if task["state"] == "awaiting_input":
                time.sleep(HESITATION_S)
                place = _question(run, task["task_id"], task["map_index"])
                self.client.patch(place, json=_answer(option))
        return self.states(run)

    def asks(self, run: str, task: str) -> None:
        """Wait until a task waits for an answer."""
        until(lambda: self.states(run)[task] == "awaiting_input")

    def add_dag(self, name: str, **options: Any) -> str:
        """Add another enabled DAG on the same warehouse; returns its URL path."""
        text = self.world.write_dag_file(self.dags.parent / name, **options).read_text("utf-8")
        own = text.replace('retention_dag("retention"', f'retention_dag("{name}"')
        return self.add_dag_file(name, own)

    def tries(self, run: str, task: str) -> int:
        """The number of a task's last try."""
        return int(self.get(f"{run}/taskInstances/{task}")["try_number"])

    def log(self, run: str, task: str, number: int = 1) -> str:
        """The log of a try of a task, in Airflow's display."""
        return json.dumps(self.get(f"{run}/taskInstances/{task}/logs/{number}"))

    def answer(self, run: str, task: str, option: str) -> dict[str, Any]:
        """Answer the question of a waiting task; returns the question."""
        self.asks(run, task)
        time.sleep(HESITATION_S)
        question: dict[str, Any] = self.get(_question(run, task))
        self.patch(_question(run, task), **_answer(option))
        return question

    def clear(self, run: str, *tasks: str) -> None:
        """Clear tasks, so that they run again."""
        name = run.rpartition("/")[2]
        self.post(
            f"{DAG}/clearTaskInstances",
            dry_run=False,
            dag_run_id=name,
            task_ids=list(tasks),
            only_failed=False,
        )


def _asked(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """The response to a request, with retries while Airflow's SQLite is locked."""
    for _ in range(10):
        done = ask()
        if done.status_code != httpx.codes.INTERNAL_SERVER_ERROR:
            break
        time.sleep(1)
    return done


def _question(run: str, task: str, index: int = -1) -> str:
    return f"{run}/taskInstances/{task}/{index}/hitlDetails"


def _answer(option: str) -> dict[str, Any]:
    return {"chosen_options": [option], "params_input": {}}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A full Airflow, on SQLite and with its local executor."""
    folder = tmp_path_factory.mktemp("stack")
    world, dags = World(folder / "lake").fill(), folder / "dags"
    world.write_dag_file(dags)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
        # Do not reparse unchanged files on a small machine.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
        # One more than the pool of the engine has slots.
        "AIRFLOW__CORE__PARALLELISM": "5",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
    }
    airflow = [sys.executable, "-m", "airflow"]
    subprocess.run([*airflow, "db", "migrate"], env=environment, check=True, capture_output=True)
    pools = [*airflow, "pools", "import", str(ROOT / "airflow_dags" / "pools.json")]
    subprocess.run(pools, env=environment, check=True, capture_output=True)
    with (folder / "standalone.log").open("wb") as log:
        running = subprocess.Popen(
            [*airflow, "standalone"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: is_up(client))
            token = client.get("/auth/token").json()["access_token"]
            client.headers["Authorization"] = f"Bearer {token}"
            until(lambda: client.get(DAG).status_code == 200)
            client.patch(DAG, json={"is_paused": False})
            yield Stack(client, world, dags)
    finally:
        for end in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(running.pid, end)
            with suppress(subprocess.TimeoutExpired):
                running.wait(20)


def is_up(client: httpx.Client) -> bool:
    """Whether the server answers, with a live scheduler."""
    with suppress(httpx.HTTPError):
        health = client.get("/api/v2/monitor/health").json()
        return all(health[name]["status"] == "healthy" for name in ("scheduler", "dag_processor"))
    return False


@pytest.fixture(scope="module")
def first(stack: Stack) -> str:
    """A run of all streams, with all required approvals."""
    run = stack.start()
    question = stack.answer(run, "WAITS.approve", "Approve")
    assert question["subject"] == "Retention: remove 3 messages of WAITS?"
    stack.ended(run)
    return run


def test_a_run_of_the_scheduler_ends_as_it_should(stack: Stack, first: str) -> None:
    states = stack.states(first)
    steps = ("plan", "approve", "apply", "compact", "reclaim")
    by_stream = {
        name: tuple(states[f"{name}.{step}"] for step in steps)
        for name in ("ORDERS", "QUIET", "BROKEN", "WAITS")
    }
    assert by_stream == {
        "ORDERS": ("success", "skipped", "success", "success", "success"),
        "QUIET": ("skipped",) * 5,
        "BROKEN": ("failed", *("upstream_failed",) * 4),
        "WAITS": ("success", "success", "success", "skipped", "success"),
    }
    log = stack.log(first, "BROKEN.plan", stack.tries(first, "BROKEN.plan"))
    assert re.search(r"retention BROKEN\.plan failed: BROKEN: .* \(exit code 6\)", log)
    assert "retain: 1 stream done, 0 failed; removed 3 messages" in stack.log(first, "ORDERS.apply")
    # A busy machine makes Airflow restart a task; a failure of the engine does not.
    assert len(list(stack.world.reports.glob("retention/*/BROKEN.plan.*.json"))) == 1


def test_each_stream_that_lost_messages_is_an_asset_that_has_changed(
    stack: Stack, first: str
) -> None:
    events = stack.get("/api/v2/assets/events")["asset_events"]
    changed = {event["name"]: event["extra"]["messages"] for event in events}
    assert changed == {"retention/ORDERS": 3, "retention/WAITS": 3}


def test_what_is_cleared_and_run_again_does_nothing_twice(stack: Stack, first: str) -> None:
    before = [record["run"] for record in stack.world.runs("ORDERS")]
    stack.clear(first, "ORDERS.apply", "ORDERS.compact", "WAITS.apply")
    states = stack.ended(first)
    again = [states[task] for task in ("ORDERS.apply", "ORDERS.compact", "WAITS.apply")]
    assert again == ["skipped"] * 3
    assert (stack.world.messages("ORDERS"), stack.world.messages("WAITS")) == (4, 0)
    removed = [record for record in stack.world.runs("ORDERS") if record["run"] not in before]
    assert sum(record.get("removed_messages", 0) for record in removed) == 0


def test_a_busy_stream_is_tried_again(stack: Stack, first: str) -> None:
    stack.world.publish("WAITS", old=1)
    holding = subprocess.Popen(
        [ENGINE / "bin" / "python", "-c", HOLDING, stack.world.folder / "streams" / "WAITS"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        run = stack.start(streams=["WAITS"])
        stack.answer(run, "WAITS.approve", "Approve")
        until(lambda: stack.answering(run)["WAITS.apply"] == "up_for_retry")
        holding.communicate()
    assert stack.ended(run)["WAITS.apply"] == "success"
    assert "(exit code 75)" in stack.log(run, "WAITS.apply")
    assert "1 message " in stack.log(run, "WAITS.apply", stack.tries(run, "WAITS.apply"))
    assert stack.world.messages("WAITS") == 0


def test_a_rejected_stream_stays_until_it_is_asked_and_approved_again(
    stack: Stack, first: str
) -> None:
    stack.world.publish("WAITS", old=2)
    run = stack.start(streams=["WAITS"])
    stack.answer(run, "WAITS.approve", "Reject")
    states = stack.ended(run, "Reject")
    assert [states[f"WAITS.{step}"] for step in ("approve", "apply", "compact", "reclaim")] == [
        "success",
        *("skipped",) * 3,
    ]
    assert stack.world.messages("WAITS") == 2
    stack.world.publish("WAITS", old=1)
    # Airflow would show the earlier numbers.
    stack.clear(run, *(f"WAITS.{step}" for step in ("plan", "approve", "apply")))
    assert stack.ended(run)["WAITS.approve"] == "failed"
    run = stack.start(streams=["WAITS"])
    question = stack.answer(run, "WAITS.approve", "Approve")
    assert question["subject"] == "Retention: remove 3 messages of WAITS?"
    assert stack.ended(run)["WAITS.apply"] == "success"
    assert stack.world.messages("WAITS") == 0


def test_a_question_holds_up_no_run_and_is_open_once(stack: Stack, first: str) -> None:
    stack.world.publish("WAITS", old=2)
    asking = stack.start(streams=["WAITS"])
    stack.asks(asking, "WAITS.approve")
    later = stack.start(streams=["WAITS", "ORDERS"])
    states = stack.ended(later)
    assert [states[f"WAITS.{step}"] for step in ("plan", "approve", "apply")] == [
        "success",
        "skipped",
        "skipped",
    ]
    assert stack.get(later)["state"] == "success"
    assert "plan: 1 stream done" in stack.log(later, "ORDERS.plan")
    name = asking.rpartition("/")[2]
    assert f"run {name} already asks about this stream" in stack.log(later, "WAITS.approve")
    stack.world.command("apply", "WAITS", "--yes")
    stack.world.publish("WAITS", old=1)
    stack.answer(asking, "WAITS.approve", "Approve")
    assert stack.ended(asking)["WAITS.apply"] == "skipped"
    assert "WAITS: superseded: run " in stack.log(asking, "WAITS.apply")
    assert stack.world.messages("WAITS") == 1


def test_a_question_of_a_batch_holds_up_no_other_stream_and_is_open_once(
    stack: Stack, first: str
) -> None:
    dag = stack.add_dag("batches", batch=4)
    stack.world.command("apply", "WAITS", "--yes")
    stack.world.publish("WAITS", old=2)
    asking = stack.start(dag, streams=["WAITS"])
    stack.asks(asking, "batch-1.asked.approve")
    later = stack.start(dag, streams=["WAITS", "ORDERS"])
    states = stack.ended(later)
    asked = [states[f"batch-1.asked.{step}"] for step in ("approve", "apply")]
    assert (asked, states["batch-1.apply"]) == (["skipped", "skipped"], "success")
    assert "plan: 1 stream done" in stack.log(later, "batch-1.plan")
    name = asking.rpartition("/")[2]
    log = f"{later}/taskInstances/batch-1.asked.approve/logs/1"
    assert f"run {name} already asks about this stream" in json.dumps(stack.get(log, map_index=0))
    assert stack.ended(asking)["batch-1.asked.apply"] == "success"
    assert stack.world.messages("WAITS") == 0


def test_the_engine_ends_with_its_runner_and_its_supervisor(stack: Stack, first: str) -> None:
    variables = slow_engine(stack.dags.parent / "is_slow")
    dag = stack.add_dag("slow", variables=variables)
    stack.start(dag, streams=["QUIET"])
    # First its runner, so that Airflow retries; then the supervisor of the second runner.
    killed: set[int] = set()
    for number in (0, 1):
        until(lambda: set(engines("/slow/")) - killed)
        [engine] = set(engines("/slow/")) - killed
        time.sleep(3)
        os.kill(engines("/slow/")[engine][number], signal.SIGKILL)
        until(lambda: engine not in engines("/slow/"), seconds=10)  # noqa: B023
        killed.add(engine)


def open_slots(stack: Stack) -> int:
    """The free slots of the engine's pool."""
    return int(stack.get("/api/v2/pools/retention")["open_slots"])


def test_other_dags_go_on_while_all_slots_of_the_engine_are_taken(stack: Stack, first: str) -> None:
    variables = slow_engine(stack.dags.parent / "night_is_slow")
    night = stack.add_dag("night", variables=variables, batch=1)
    run = stack.start(night)
    until(lambda: open_slots(stack) == 0)
    other = stack.add_dag_file("other", OTHER)
    assert stack.ended(stack.start(other)) == {"first": "success", "last": "success"}
    assert stack.get(run)["state"] == "running"
    assert open_slots(stack) == 0
    stack.patch(run, state="failed")
    until(lambda: not engines("/night/", "retain"))
