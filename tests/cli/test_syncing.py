from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_dags.ending import read_ending
from airflow_dags.options import arguments_of
from airflow_dags.steps import SYNC, Past, is_nothing
from retention.stores.lease import lease
from retention.views.json_schemas import published
from tests.support.jobs import run_job
from tests.support.nats_oracle import Nats, server
from tests.support.sandboxes import NOW, ORDERS, Commands, commands

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        for name in ("S", "T"):
            started.request(
                f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name.lower()}.>"]}
            )
        started.publish([(f"s.{at}", b"x", None) for at in range(3)])
        yield started


def copies(folder: Path, nats: Nats, **sync: Any) -> Commands:
    """S and T are copies, and ORDERS is none."""
    entries = [{"name": name, "sync": {"server": nats.url, **sync}} for name in ("S", "T")]
    return commands(folder, *entries, ORDERS)


def test_all_copies_are_brought_up_to_their_servers(nats: Nats, tmp_path: Path) -> None:
    made = copies(tmp_path, nats)
    done = made.run("sync", "nats")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "S: copied 3 messages in 1 commit, up to sequence 3 of S",
        "T: copied 0 messages in 0 commits, up to sequence 0 of T",
    ]
    assert "S: synced, copied 3 messages" in done.stderr
    (entry,) = made.json("sync", "nats", "S", "--with-config")["streams"]
    assert (entry["messages"], entry["position"], entry["behind"], entry["notes"]) == (0, 3, 0, [])


def test_the_job_reports_and_its_metrics_have_what_was_copied(nats: Nats, tmp_path: Path) -> None:
    from jsonschema import Draft202012Validator

    copies(tmp_path, nats)
    report, metrics = tmp_path / "report.json", tmp_path / "sync.prom"
    files = ("--report-file", str(report), "--metrics-file", str(metrics))
    done = run_job("sync", tmp_path, *files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sync: 2 streams done, 0 failed; copied 3 messages (")
    schema = json.loads(published()["report.sync.schema.json"])
    document = json.loads(report.read_text(encoding="utf-8"))
    assert list(Draft202012Validator(schema).iter_errors(document)) == []
    shown = metrics.read_text(encoding="utf-8")
    assert 'retention_stream_synced_messages{command="sync",stream="S"} 3' in shown
    assert 'retention_stream_sync_behind_sequences{command="sync",stream="S"} 0' in shown
    refused = run_job("sync", tmp_path, "--stream", "ORDERS", *files)
    assert refused.returncode == 2
    assert "it has no sync in its configuration" in refused.stderr
    assert list(Draft202012Validator(schema).iter_errors(json.loads(report.read_text()))) == []
    skipped = run_job("sync", tmp_path, "--stream", "ORDERS", "--configured")
    assert skipped.returncode == 0


def test_the_step_of_a_dag_counts_what_was_copied_and_is_never_skipped(
    nats: Nats, tmp_path: Path
) -> None:
    copies(tmp_path, nats)
    report = tmp_path / "report.json"
    options = {"log_format": "json", "debug": True, "wait": "1s"}
    given = arguments_of(options, SYNC.name, "S")
    for messages in (3, 0):
        words = ("--stream", "S", "--report-file", str(report), *SYNC.arguments(Past({})), *given)
        assert run_job(SYNC.job, tmp_path, *words).returncode == 0
        counts = SYNC.counts(read_ending(0, report).entry)
        assert (counts["messages"], counts["missed"], counts["behind"]) == (messages, 0, 0)
        assert not is_nothing(SYNC, counts)


def test_another_server_and_another_name_may_be_given(nats: Nats, tmp_path: Path) -> None:
    entry = {"name": "COPY", "sync": {"server": "nats://127.0.0.1:1", "stream": "S"}}
    made = commands(tmp_path, entry)
    done = made.run("sync", "nats", "COPY", "--server", nats.url)
    assert done.stdout == "COPY: copied 3 messages in 1 commit, up to sequence 3 of S\n"


def test_what_cannot_be_synced_is_one_sentence(nats: Nats, tmp_path: Path) -> None:
    made = copies(tmp_path, nats, stream="MISSING")
    assert "MISSING" in made.run("sync", "nats", "S").stderr
    off = commands(tmp_path / "off", {"name": "S", "sync": {"server": "nats://127.0.0.1:1"}})
    done = off.run("sync", "nats")
    assert done.exit_code != 0
    assert "127.0.0.1:1" in done.stderr
    assert made.run("sync", "nats", "S", "--batch-messages", 0).exit_code == 2


def test_two_syncs_of_a_stream_are_one_sentence_and_75(nats: Nats, tmp_path: Path) -> None:
    made = copies(tmp_path, nats)
    assert made.run("sync", "nats").exit_code == 0
    with lease(str(tmp_path / "streams" / "S"), "sync", lambda: NOW):
        done = made.run("sync", "nats", "S")
        assert made.run("doctor", "S").stdout.count("the sync lease is held by") == 1
    assert done.exit_code == 75
    assert done.stderr.count("\n") <= 2


def test_publishing_into_a_copy_is_refused(nats: Nats, tmp_path: Path) -> None:
    made = copies(tmp_path, nats)
    done = made.run("publish", "S", stdin='{"subject": "s.1", "data": "x"}\n')
    assert (done.exit_code, "in step with a live server" in done.stderr) == (2, True)
