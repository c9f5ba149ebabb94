"""The job's report on a source's columns: required, chosen, and omitted ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.jobs import Ended, run_job
from tests.support.sandboxes import ORDERS, Commands, configured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession) -> Path:
    """A warehouse, and a source of three rows: the second without a time, the third without a payload."""
    del spark
    configured(tmp_path, ORDERS)
    rows = [
        {"seq": 2, "who": "a b", "body": "x", "created_at": "2026-11-20T00:00:00Z", "note": "n"},
        {"seq": 1, "who": "a b", "body": "y", "created_at": None, "note": "n"},
        {"seq": 3, "who": "c", "body": None, "created_at": "2026-11-20T00:00:00Z", "note": "n"},
    ]
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def ingested(folder: Path, *options: str) -> Ended:
    said = [f"--{option}" for option in ("stream=ORDERS", "source=source", "source-format=json")]
    said += [
        "--column",
        "subject=concat('orders.', subject_token(who))",
        "--column",
        "payload=body",
    ]
    return run_job("ingest", folder, *said, *options)


def test_a_source_says_its_time_and_no_row_is_timed_or_emptied_silently(folder: Path) -> None:
    untimed = ingested(folder)
    assert (untimed.returncode, untimed.stderr) == (
        2,
        f"ingest: {folder / 'source'}: no column is said to be the time of its messages; created_at may be; nothing "
        "was read; give --column time=SQL (a timestamp) or ts_ns=SQL (nanoseconds since the epoch), or --time now, by "
        "which each message is as old as its ingest\n",
    )
    time = ("--column", "time=to_timestamp(created_at)")
    null_time = ingested(folder, *time, "--where", "body IS NOT NULL")
    assert null_time.returncode == 2
    assert (
        "'orders.a=20b': time is null: --time now, or --as-of, says which time" in null_time.stderr
    )
    null_payload = ingested(folder, "--time", "now")
    assert null_payload.returncode == 2
    assert (
        "the row with subject 'orders.c': payload is null, which is not a message"
        in null_payload.stderr
    )
    assert Commands(folder).json("state", "ORDERS")[0]["messages"] == 0


def test_the_order_that_was_chosen_and_the_columns_left_out_are_said(folder: Path) -> None:
    report = folder / "report.json"
    options = ("--time", "now", "--tombstone", "body IS NULL", "--report-file", str(report))
    done = ingested(folder, *options)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "ingest: messages get their sequences in the order of seq, which the source has; --order-by says otherwise",
        "ingest: left out of the messages: created_at, note; --column, or --payload all, takes them in",
    ]
    said = json.loads(report.read_text())
    assert (said["order_by"], said["left_out"]) == (["seq"], ["created_at", "note"])
    messages = Commands(folder).run("--format", "jsonl", "messages", "ORDERS").stdout.splitlines()
    shown = [(row["subject"], row["operation"]) for row in map(json.loads, messages)]
    assert shown == [("orders.a=20b", "put"), ("orders.a=20b", "put"), ("orders.c", "delete")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--order-by", "seq,"], "--order-by seq,: a column has no name"),
        (["--order-by", "sequel"], "--order-by sequel: .*`sequel`.*nothing was read; .* columns body, created_at"),
        (["--payload", "all"], "--payload all and --column payload=SQL are two payloads"),
        (["--tombstone", "body"], "--tombstone body: it is string, and no condition"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(folder: Path, options: list[str], said: str) -> None:
    refused = ingested(folder, "--time", "now", *options)
    assert refused.returncode == 2
    assert re.search(said, refused.stderr), refused.stderr
