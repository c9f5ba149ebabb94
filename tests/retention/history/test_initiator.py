from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from retention.history.initiator import SCHEDULERS, initiator
from retention.history.runs import History
from tests.support.run_records import run_record

AIRFLOW = {
    "AIRFLOW_CTX_DAG_ID": "nightly",
    "AIRFLOW_CTX_TASK_ID": "retain",
    "AIRFLOW_CTX_DAG_RUN_ID": "scheduled__2026-11-22T00:00:00+00:00",
    "AIRFLOW_CTX_TRY_NUMBER": "2",
}


def test_a_process_is_named_by_user_machine_and_number() -> None:
    who = initiator({})
    assert who["pid"] == os.getpid()
    assert who["host"] == os.uname().nodename
    assert who["user"]
    assert who["program"]
    assert "scheduler" not in who


@pytest.mark.parametrize(
    ("environment", "scheduler"),
    [
        (
            AIRFLOW,
            {
                "airflow": {
                    "dag_id": "nightly",
                    "task_id": "retain",
                    "dag_run_id": "scheduled__2026-11-22T00:00:00+00:00",
                    "try_number": "2",
                }
            },
        ),
        ({"INVOCATION_ID": "0af3"}, {"systemd": {"invocation_id": "0af3"}}),
        ({"SPARK_APPLICATION_ID": "app-7"}, {"spark": {"application_id": "app-7"}}),
        (
            {"INVOCATION_ID": "0af3", "AIRFLOW_CTX_DAG_ID": "nightly"},
            {"airflow": {"dag_id": "nightly"}, "systemd": {"invocation_id": "0af3"}},
        ),
        ({"AIRFLOW_CTX_DAG_ID": ""}, None),
    ],
)
def test_a_scheduler_is_known_by_its_variables(
    environment: dict[str, str], scheduler: dict[str, dict[str, str]] | None
) -> None:
    assert initiator(environment).get("scheduler") == scheduler


def test_no_other_variable_is_kept() -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": "hunter2", "AIRFLOW_CONN_DB": "postgres://u:hunter2@h/d"}
    assert "hunter2" not in json.dumps(initiator(secrets | AIRFLOW))


def test_a_hostile_name_is_one_short_line() -> None:
    variables = dict.fromkeys(SCHEDULERS["airflow"].values(), "\x1b[2J\n" + "x" * 9000)
    names = initiator(variables)["scheduler"]["airflow"].values()
    assert all(len(name) <= 256 and name.isprintable() for name in names)


def test_both_records_of_a_run_say_who_ran_it(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.begin(run_record("a"))
    history.finish(run_record("a", status="done"))
    for record in (history.begun("a"), history.done("a")):
        assert record is not None
        assert record.who == initiator()


def test_a_record_that_says_nobody_is_left_so(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.finish(run_record("a", status="done", who=None))
    [record] = history.outcomes()
    assert record.who is None
