"""The DAG file of the guide, loaded by Airflow."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_dags.configuration import UnlistedOperator
from airflow_dags.engine import Cluster, Engine
from airflow_dags.factory import retention_dag
from airflow_dags.operators import PlanOperator
from airflow_dags.question import question
from airflow_dags.running import JobTask
from airflow_dags.steps import PLAN, Counts
from tests.airflow.world import BLOCKS, ENGINE, ROOT, World

STEPS = ["plan", "approve", "apply", "compact", "reclaim"]
NAMES = ["ORDERS", "QUIET", "BROKEN", "WAITS"]
COST = """
import sys, time
import airflow
from airflow.sdk import DAG, BaseOperator
started = time.process_time()
import retention_dag
print(time.process_time() - started)
print(*sorted({"retention", "pyspark", "pyarrow", "jobs"} & set(sys.modules)))
"""


@pytest.fixture
def dags(tmp_path: Path, world: World) -> Path:
    """A folder with the DAG file and the package, laid out as in the guide."""
    world.fill("NONE")
    dags = tmp_path / "dags"
    world.write_dag_file(dags)
    return dags


def is_task(name: str) -> bool:
    return name in ("configuration", "unlisted")


def loaded(dags: Path) -> Any:
    from airflow.dag_processing.dagbag import BundleDagBag

    return BundleDagBag(str(dags), bundle_path=dags, bundle_name="dags")


def test_the_dag_of_the_guide_loads(home: Path, dags: Path) -> None:
    bag = loaded(dags)
    assert bag.import_errors == {}
    assert list(bag.dags) == ["retention"]
    assert [Path(stats.file).name for stats in bag.dagbag_stats] == ["retention_dag.py"]
    dag = bag.dags["retention"]
    assert [task.task_id for task in dag.tasks] == [
        "configuration",
        "unlisted",
        *(f"{name}.{step}" for name in NAMES for step in STEPS),
    ]
    assert dag.get_task("configuration").task_type == "EmptyOperator"
    heads = {"unlisted", *(f"{name}.plan" for name in NAMES)}
    assert dag.get_task("configuration").downstream_task_ids == heads
    assert dag.get_task("unlisted").downstream_task_ids == set()
    task = dag.get_task("ORDERS.apply")
    assert (task.pool, task.execution_timeout) == ("retention", timedelta(hours=2))
    assert [asset.name for asset in task.outlets] == ["retention/ORDERS"]
    assert dag.get_task("WAITS.approve").response_timeout == timedelta(hours=12)
    assert dag.max_active_runs == 16


def test_names_that_airflow_does_not_take_are_shown_all_the_same(
    home: Path, dags: Path, world: World
) -> None:
    with world.config.open("a", encoding="utf-8") as file:
        file.write('topics: [{name: clicks.eu}, {name: "two words, ü"}]\n')
    bag = loaded(dags)
    assert bag.import_errors == {}
    groups = bag.dags["retention"].task_group.children
    shown = {group.group_display_name: name for name, group in groups.items() if not is_task(name)}
    assert shown["clicks.eu"].startswith("clicks_eu-")
    assert "two words, ü" in shown


@pytest.mark.parametrize("name", ["{{ var.value.a_secret }}", "A{{B", "{% for %}", "{#"])
def test_a_name_is_never_a_template(
    home: Path, dags: Path, world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_A_SECRET", "s3cr3t")
    world.config.write_text(f"topics:\n  - name: {json.dumps(name)}\n", encoding="utf-8")
    plan = {
        "needs_approval": f"{name}: asks always",
        "messages": 3,
        "bytes": 9,
        "by_rule": {},
        "as_of_ns": 1,
        "report": "/r",
        "guards": [f"takes all of {name}"],
        "extent": None,
        "grace": "7d",
    }
    engine = Engine("/srv/retention.yaml", "/e", "/r")
    for dag in (loaded(dags).dags["retention"], _on_a_cluster(world)):
        for task in dag.tasks:
            if task.task_id.endswith("approve"):
                task.body = question(engine, name, plan)
            before = {
                field: str(getattr(task, field))
                for field in ("subject", "body", "name")
                if hasattr(task, field)
            }
            task.render_template_fields({"params": {}}, dag.get_template_env())
            assert {field: str(getattr(task, field)) for field in before} == before
            assert "s3cr3t" not in str(vars(task))


def _on_a_cluster(world: World, **options: Any) -> Any:
    engine = Engine(
        config=str(world.config),
        environment="/opt/retention",
        reports=str(world.reports),
        cluster=Cluster(jobs="/srv/jobs"),
    )
    return retention_dag("on_a_cluster", engine, **options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("streams: [", "the streams cannot be read from it"),
        ("warehouse: .", "lists no stream"),
        (None, "No such file"),
    ],
)
def test_a_configuration_without_streams_is_one_sentence_of_airflows(
    home: Path, dags: Path, world: World, text: str | None, reason: str
) -> None:
    if text is None:
        world.config.unlink()
    else:
        world.config.write_text(text, encoding="utf-8")
    [error] = loaded(dags).import_errors.values()
    assert reason in error.splitlines()[-1]


def test_a_configuration_that_is_broken_later_is_a_failing_task(
    home: Path, dags: Path, world: World
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    assert loaded(dags).import_errors == {}
    world.config.write_text("streams: [", encoding="utf-8")
    bag = loaded(dags)
    assert bag.import_errors == {}
    dag = bag.dags["retention"]
    assert list(dag.task_group.children) == ["configuration", "unlisted", *NAMES]
    first = dag.get_task("configuration")
    assert first.downstream_task_ids == {"unlisted", *(f"{name}.plan" for name in NAMES)}
    assert len(first.on_failure_callback) == 1
    with pytest.raises(AirflowFailException, match=r"yaml: the streams cannot be read from it: "):
        first.execute({})


def test_a_stream_that_is_not_listed_holds_up_no_other(
    home: Path, dags: Path, world: World
) -> None:
    engine = Engine(str(world.config), "/opt/retention", str(world.reports))
    dag = retention_dag("some", engine, streams=["ORDERS", "ODERS"])
    first: Any = dag.get_task("configuration")
    assert first.mistake == f"{world.config}: does not list ODERS; leave that out, or list it"
    assert first.downstream_task_ids == {"ODERS.plan"}


def test_a_stream_may_be_called_as_a_task_of_the_dag_is(
    home: Path, dags: Path, world: World
) -> None:
    text = "topics: [{name: configuration}, {name: unlisted}]"
    world.config.write_text(text, encoding="utf-8")
    bag = loaded(dags)
    assert bag.import_errors == {}
    assert len(bag.dags["retention"].task_group.children) == 4


def test_a_copy_of_a_live_stream_is_synced_before_its_plan(
    home: Path, dags: Path, world: World
) -> None:
    with world.config.open("a", encoding="utf-8") as file:
        file.write('topics: [{name: clicks, stream: web, sync: {server: "localhost:1"}}]\n')
    dag = loaded(dags).dags["retention"]
    sync, plan = dag.get_task("clicks.sync"), dag.get_task("clicks.plan")
    assert sync.downstream_task_ids == {"clicks.plan"}
    assert (plan.upstream_task_ids, plan.trigger_rule) == ({"clicks.sync"}, "none_failed")
    assert "clicks.sync" in dag.get_task("configuration").downstream_task_ids
    assert "ORDERS.sync" not in dag.task_ids


def test_the_dag_of_batches_has_tasks_for_many_streams_and_mapped_ones_for_people(
    home: Path, dags: Path, world: World
) -> None:
    world.write_dag_file(dags, batch=3)
    bag = loaded(dags)
    assert bag.import_errors == {}
    dag = bag.dags["retention"]
    assert list(dag.task_group.children) == ["configuration", "unlisted", "batch-1", "batch-2"]
    children = dag.task_group.children["batch-1"].children
    assert sorted(task for task in dag.task_ids if task.startswith("batch-1.")) == sorted(
        [
            *(f"batch-1.{step}" for step in ("apply", "plan", "reclaim")),
            *(f"batch-1.asked.{step}" for step in STEPS[1:]),
            "batch-1.outcomes",
            "batch-1.failed",
        ]
    )
    assert type(children["batch-1.asked"]).__name__ == "MappedTaskGroup"
    assert dag.get_task("batch-1.plan").pool == "retention"
    engine = Engine(str(world.config), "/opt/retention", str(world.reports))
    some = retention_dag("some", engine, streams=["ORDERS", "ODERS"], batch="tag")
    assert list(some.task_group.children)[2:] == ["not-listed", "no-tag"]
    assert some.get_task("configuration").downstream_task_ids == {"not-listed.apply"}
    on_a_cluster = _on_a_cluster(world, batch=2)
    kinds = {task: on_a_cluster.get_task(task).task_type for task in ("batch-1.plan", "unlisted")}
    assert kinds == {"batch-1.plan": "SubmitBatchOperator", "unlisted": "UnlistedOperator"}
    assert on_a_cluster.get_task("batch-1.asked.apply").task_type == "SubmitOperator"
    with pytest.raises(ValueError, match="batch: 'tags' is neither"):
        retention_dag("wrong", engine, batch="tags")


@pytest.mark.parametrize("follows", ["keep", "warn", "fail"])
def test_a_stream_that_is_listed_no_more_is_looked_for_as_the_configuration_wants(
    home: Path, world: World, capfd: pytest.CaptureFixture[str], follows: str
) -> None:
    world.fill("ORDERS")
    world.command("apply", "ORDERS", "--yes")
    text = world.config.read_text(encoding="utf-8").replace("{name: ORDERS,", "{name: ODERS,")
    world.config.write_text(f"{text}unlisted: {follows}\n", encoding="utf-8")
    variables = {"PYTHONPATH": str(ROOT)}
    engine = Engine(str(world.config), str(ENGINE), str(world.reports), variables=variables)
    task = UnlistedOperator(task_id="unlisted", engine=engine)
    sentence = f"ORDERS is in the warehouse, and {world.config} does not list it, so no"
    context: Any = {"params": {"streams": []}}
    if follows == "fail":
        with pytest.raises(AirflowFailException, match=re.escape(sentence)) as raised:
            task.execute(context)
        assert str(raised.value).endswith("did you mean ODERS? (exit code 4)")
    else:
        task.execute(context)
        logged = capfd.readouterr()
        assert (sentence in logged.out + logged.err) == (follows == "warn")


def test_the_form_takes_streams_of_the_file_and_no_others(home: Path, dags: Path) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    params = loaded(dags).dags["retention"].params
    params.validate()
    params["streams"] = ["ORDERS"]
    with pytest.raises((ParamValidationError, ValueError)):
        params["streams"] = ["ODERS"]


def test_nobody_having_answered_in_time_is_a_failure_with_its_sentence(
    home: Path, dags: Path
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    task = loaded(dags).dags["retention"].get_task("WAITS.approve")
    with pytest.raises(AirflowFailException, match="WAITS: no answer came within 12:00:00"):
        task.process_trigger_event_error({"error": "passed", "error_type": "timeout"})


def test_the_file_costs_less_than_a_tenth_of_a_second(home: Path, dags: Path) -> None:
    costs = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", COST], cwd=dags, capture_output=True, text=True, check=True
        )
        cost, heavy = done.stdout.splitlines()[-2:]
        assert heavy == ""
        costs.append(float(cost))
    print(f"{statistics.median(costs):.3f} s")
    assert min(costs) < 0.1


def test_every_block_of_the_guide_loads(home: Path, dags: Path, world: World) -> None:
    assert len(BLOCKS) == 6
    *blocks, own = BLOCKS[1:]
    (dags / "own.py").write_text(own.replace("/srv/lake/retention.yaml", str(world.config)))
    for number, block in enumerate(blocks):
        head = "from airflow_dags.engine import Engine\nfrom airflow_dags.factory import retention_dag\n"
        text = block.replace("/srv/lake/retention.yaml", str(world.config))
        tail = f'dag = retention_dag("guide{number}", engine, streams=["ORDERS"], on_failure=[print])\n'
        (dags / f"guide{number}.py").write_text(f"{head}{text}\n{tail}", encoding="utf-8")
    bag = loaded(dags)
    assert bag.import_errors == {}
    kinds = {
        name: dag.get_task("ORDERS.apply").task_type
        for name, dag in bag.dags.items()
        if name not in ("orders", "nightly")
    }
    assert kinds == {
        "retention": "JobOperator",
        "guide0": "JobOperator",
        "guide1": "JobOperator",
        "guide2": "SubmitOperator",
        "guide3": "JobOperator",
        "alerting": "JobOperator",
    }
    alerting = bag.dags["alerting"]
    assert [alert.interval for alert in alerting.deadline] == [timedelta(hours=4)]
    assert len(alerting.get_task("ORDERS.apply").on_failure_callback) == 2
    assert bag.dags["nightly"].get_task("batch-1.apply").task_type == "BatchOperator"
    assert sorted(bag.dags["orders"].task_ids) == sorted(["load", *STEPS[:3]])


class BesideAnOlderEngine(JobTask[Counts]):
    """A task whose engine writes reports without the counts of this release."""

    def work(self, context: Context) -> Counts:
        return PLAN.counts({})


def test_an_engine_of_another_release_is_not_tried_again() -> None:
    with pytest.raises(
        AirflowFailException, match="the engine and these DAGs are of different releases"
    ):
        BesideAnOlderEngine().execute({})


def test_an_operator_on_the_worker_refuses_a_cluster() -> None:
    engine = Engine("/r.yaml", "/opt/retention", "/srv/reports", cluster=Cluster("/srv/jobs"))
    with pytest.raises(ValueError, match=r"^plan: runs on Airflow's worker, and the engine has"):
        PlanOperator(task_id="plan", engine=engine, stream="ORDERS")
