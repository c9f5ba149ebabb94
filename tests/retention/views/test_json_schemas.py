from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention.doctor.finding import ok, problem
from retention.history.report import FORMAT_VERSION, KIND
from retention.ingest.table_source import Ingested
from retention.stores.lease import lease
from retention.views.json_schemas import published
from tests.support.jobs import run_job
from tests.support.sandboxes import NOW, ORDERS, lines, opened

CHECKED_IN = Path(__file__).parents[3] / "schemas" / "json"


def wrong(schema: str, document: Any) -> list[str]:
    """The keys at which a document is not what a published schema says.

    The import takes three seconds, so that only the process that validates pays them.
    """
    from jsonschema import Draft202012Validator

    text = (CHECKED_IN / schema).read_text(encoding="utf-8")
    validator = Draft202012Validator(json.loads(text))
    return [error.json_path for error in validator.iter_errors(document)]


def test_the_files_that_are_checked_in_are_current() -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in CHECKED_IN.iterdir()}
    assert kept == published(), "`make docs` writes them"


def test_a_saved_plan_is_what_its_schema_says(tmp_path: Path) -> None:
    queue = {
        **ORDERS,
        "retention": "workqueue",
        "consumers": [{"durable_name": "c", "ack_policy": "explicit"}],
    }
    stream = opened(tmp_path, queue).stream("ORDERS")
    stream.publish(lines(48))
    stream.plan().save(str(tmp_path / "plan.json"))
    stream.purge("orders.new", keep=1).save(str(tmp_path / "purge.json"))
    for name in ("plan.json", "purge.json"):
        document = json.loads((tmp_path / name).read_text(encoding="utf-8"))
        assert wrong("plan.schema.json", document) == []
    document["plans"][0]["removed_messages"] = "many"
    assert wrong("plan.schema.json", document) == ["$.plans[0].removed_messages"]
    tables = json.loads((CHECKED_IN / "tables.json").read_text(encoding="utf-8"))
    for part in document["sha256"]:
        columns = pq.read_schema(tmp_path / f"plan.json.{part}.parquet")
        assert [(column.name, str(column.type).replace("element: ", "")) for column in columns] == [
            (column["name"], column["type"]) for column in tables[f"plan.{part}"]
        ]


def test_the_report_of_a_pass_is_what_its_schema_says(tmp_path: Path) -> None:
    other = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}
    warehouse = opened(tmp_path, ORDERS, other)
    warehouse.stream("ORDERS").publish(lines(48))
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    report = tmp_path / "report.json"
    arguments = ("--engine", "local", "--compact", "--report-file", str(report))
    with lease(str(tmp_path / "streams" / "OTHER"), "maintenance", lambda: NOW):
        assert run_job("retain", tmp_path, *arguments).returncode == 75
    document = json.loads(report.read_text(encoding="utf-8"))
    assert ["error" in entry for entry in document["streams"]] == [False, True]
    assert wrong("report.schema.json", document) == []
    del document["streams"][0]["run"]
    assert wrong("report.schema.json", document) == ["$.streams[0]"]


def test_the_report_of_a_job_that_fails_is_what_its_schema_says(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert run_job("retain", tmp_path, "--report-file", str(report)).returncode == 2
    document = json.loads(report.read_text(encoding="utf-8"))
    assert wrong("report.schema.json", document) == []
    del document["error"]
    assert wrong("report.schema.json", document) == ["$"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("plan", ("--as-of", "2030-01-01", "--stream", "ORDERS")),
        ("compact", ("--stream", "ORDERS")),
        ("reclaim", ("--stream", "ORDERS")),
        ("mirror", ("--stream", "COPY")),
    ],
)
def test_the_report_of_every_job_is_what_its_schema_says(
    tmp_path: Path, job: str, words: tuple[str, ...]
) -> None:
    copy = {"name": "COPY", "mirror": {"name": "ORDERS"}}
    stream = opened(tmp_path, ORDERS, copy).stream("ORDERS")
    for _ in range(3):
        stream.publish(lines(48))
    stream.plan().apply()
    report = tmp_path / "report.json"
    run_job(job, tmp_path, *words, "--stream", "NONE", "--report-file", str(report))
    document = json.loads(report.read_text(encoding="utf-8"))
    assert ["error" in entry for entry in document["streams"]] == [False, True]
    assert wrong(f"report.{job}.schema.json", document) == []
    for entry in document["streams"]:
        del entry["stream"]
    assert {path[:9] for path in wrong(f"report.{job}.schema.json", document)} == {"$.streams"}


def test_findings_and_ingested_rows_are_what_their_schemas_say() -> None:
    start = {"format_version": FORMAT_VERSION, "kind": KIND}
    findings = [ok("java", "17").as_json(), problem("spark", "no", "install", "ORDERS").as_json()]
    assert wrong("report.doctor.schema.json", {**start, "findings": findings}) == []
    done = asdict(Ingested("ORDERS", "source", 1, 2, 3, ("note",))) | {"seconds": 0.5}
    document = json.loads(json.dumps(start | done))
    assert wrong("report.ingest.schema.json", document) == []
    del document["batches"]
    assert wrong("report.ingest.schema.json", document) == ["$"]
