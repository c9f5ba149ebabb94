from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.retention.views.test_json_schemas import wrong
from tests.support.jobs import Ended, run_job
from tests.support.sandboxes import ORDERS, lines, opened

ROOT = Path(__file__).parents[2]


def fold(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "retention.jobs.fold", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three messages, a consumer, and acks of two of them in two logs."""
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(lines(3))
    stream.consumers.add({"durable_name": "all", "ack_policy": "explicit"})
    for seq in (1, 2):
        said = {
            "subject": f"$JS.ACK.ORDERS.all.1.{seq}.{seq}.1790000000000000000.0",
            "data": "+ACK",
        }
        (tmp_path / f"{seq}.jsonl").write_text(json.dumps(said) + "\n")
    return tmp_path


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_the_job_folds_and_reports(
    folder: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    """On Spark in the shared session; `test_it_runs_under_spark_submit` covers the start of a session by a job."""
    report = folder / "report.json"
    logs = ("--log", "1.jsonl", "--log", "2.jsonl")
    where = ("--stream", "ORDERS", "--report-file", str(report), "--engine", engine)
    if engine == "spark":
        request.getfixturevalue("spark")
        done: Ended | subprocess.CompletedProcess[str] = run_job("fold", folder, *where, *logs)
    else:
        done = fold(folder, *where, *logs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1] == "  all: 1 line: 1 settle"
    document = json.loads(report.read_text(encoding="utf-8"))
    assert wrong("report.fold.schema.json", document) == []
    entries = document["logs"]
    assert [(one["rows"], one["before"], list(one["consumers"])) for one in entries] == [
        (1, 0, ["all"])
    ] * 2
    [info] = opened(folder, ORDERS).stream("ORDERS").consumers.list()
    assert info.ack_floor == {"consumer_seq": 2, "stream_seq": 2}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--log", "1.jsonl"), 2, "give one --stream"),
        (("--log", "1.jsonl", "--stream", "ORDERS", "--as-of", "1"), 2, "no --as-of"),
        (("--log", "none.jsonl", "--stream", "ORDERS"), 2, "none.jsonl cannot be read"),
        (("--log", "1.jsonl", "--stream", "NONE"), 2, "there is no such stream"),
    ],
)
def test_mistakes_are_one_sentence(
    folder: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    done = run_job("fold", folder, "--engine", "local", *arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1
