"""The variant for clusters: Airflow's SparkSubmitOperator and a real `spark-submit`, with Spark in one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.airflow.test_runs import states
from tests.airflow.world import ROOT, World, load

CLUSTER = f'__import__("airflow_dags.engine").engine.Cluster({str(ROOT / "jobs")!r}, conn_id="one_machine")'
CONNECTION = {"conn_type": "spark", "host": "local[1]"}


def test_jobs_are_submitted_and_their_codes_and_sentences_come_back(
    home: Path,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONE_MACHINE", json.dumps(CONNECTION))
    world.fill("ORDERS", "BROKEN")
    dag = load(world.write_dag_file(home / "dags", cluster=CLUSTER, engine='"spark"'))
    run = dag.test(run_conf={"streams": ["ORDERS", "BROKEN"]})
    by_stream = states(run)
    assert by_stream["ORDERS"] == ("success", "skipped", "success", "success", "success")
    assert by_stream["BROKEN"] == ("failed", *("upstream_failed",) * 4)
    assert world.messages("ORDERS") == 4
    logged = capfd.readouterr()
    assert "restore it from a copy (exit code 6)" in logged.out + logged.err
