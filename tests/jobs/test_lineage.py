"""OpenLineage events of jobs, through its own client into a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from retention.core.outcomes import act_sequentially
from retention.jobs.lineage import dataset_name, sending_lineage
from tests.support.jobs import Ended, run_job
from tests.support.sandboxes import ORDERS, commands, lines

PAST = "2026-01-01T00:00:00Z"
PARENT = "01a208fc-bfee-7f2e-9318-1433292d07d3"


def retain(folder: Path, *arguments: str) -> Ended:
    return run_job(
        "retain", folder, "--engine", "local", "--as-of", PAST, "--openlineage", *arguments
    )


def refuse_notes(text: str) -> None:
    raise AssertionError(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    old = lines(2, first_ns=1_600_000_000 * 10**9)
    commands(tmp_path, ORDERS, engine="local").json("publish", "ORDERS", stdin="\n".join(old))
    return tmp_path


def sent(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "events.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line]


def test_each_stream_starts_and_completes_fails_or_aborts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(folder / "events.jsonl"))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"dags/nightly/{PARENT}")
    assert retain(folder, "--stream", "ORDERS", "--stream", "NONE").returncode == 5
    start, complete, other, fail = sent(folder)
    assert [event["eventType"] for event in (start, complete, other, fail)] == [
        *("START", "COMPLETE", "START", "FAIL")
    ]
    assert start["run"]["runId"] == complete["run"]["runId"] != other["run"]["runId"]
    assert start["job"] == {"namespace": "default", "name": "retain.ORDERS"} | {
        "facets": start["job"]["facets"]
    }
    (dataset,) = complete["outputs"]
    assert (dataset["namespace"], dataset["name"]) == dataset_name(str(folder), "ORDERS")
    assert dataset["facets"]["version"]["datasetVersion"] == "2"
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["size"] == 0
    assert {event["job"]["facets"]["jobType"]["processingType"] for event in sent(folder)} == {
        "BATCH"
    }
    assert complete["run"]["facets"]["parent"]["run"]["runId"] == PARENT
    assert "there is no such stream" in fail["run"]["facets"]["errorMessage"]["message"]
    assert complete["eventTime"] > start["eventTime"]
    done = retain(folder, "--max-time", "0s", "--log-format", "json")
    assert (done.returncode, sent(folder)[-1]["eventType"]) == (0, "ABORT")
    assert len(done.stderr.splitlines()) == 2


def test_a_stream_that_was_interrupted_is_aborted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "file")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__LOG_FILE_PATH", str(folder / "events.jsonl"))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__APPEND", "true")

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        sending_lineage("retain", str(folder), refuse_notes),
    ):
        act_sequentially(["ORDERS"], interrupted, lambda: 0)
    start, abort = sent(folder)
    assert (start["eventType"], abort["eventType"]) == ("START", "ABORT")
    assert start["run"]["runId"] == abort["run"]["runId"]


def test_a_server_that_is_down_stops_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    done = retain(folder)
    assert done.returncode == 0
    assert "1 stream done, 0 failed; removed 2 messages" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "retain: OpenLineage events cannot be sent; the run continues without them"
    )


def test_without_the_client_it_is_a_usage_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    done = retain(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'lake-retention[lineage]'" in done.stderr


def test_a_table_is_called_as_others_call_it() -> None:
    assert dataset_name("s3://lake/w", "A B") == ("s3://lake", "w/streams/A%20B/messages")
    assert dataset_name("/w", "A") == ("file", "/w/streams/A/messages")
