"""Jobs in Spark's UI: each shows stream, step and run, long ones their progress, and a cancelled run ends cleanly."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retention.apply import stage
from retention.apply.orphans import orphans
from retention.core.labels import labelled
from retention.core.progress import LOGGER
from retention.datafile.rewrite import copy_remaining
from retention.engines.spark import append, jobs
from retention.engines.spark.engine import SparkEngine
from retention.errors import CancelledError
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.spark_jobs import PATIENCE_S, called, noted, noting, wait_for, waiting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from retention.api.warehouse import Warehouse

pytestmark = pytest.mark.spark
PROPERTIES = ("spark.jobGroup.id", "spark.job.description")


def called_in_task(_: int) -> tuple[str, str, str]:
    return called()


def slow(_: int) -> None:
    time.sleep(0.6)


@pytest.fixture
def laid(tmp_path: Path) -> Warehouse:
    """Three segments of ten messages; half of the second is removed."""
    warehouse = warehouse_with(tmp_path / "w", "delta", START + 99 * SECOND, "spark", max_msgs=15)
    lay(warehouse.stream("ORDERS").opened, even_segments(3, 10))
    return warehouse


@pytest.fixture
def own_group(spark: SparkSession) -> Iterator[str]:
    """A job group set by the caller."""
    spark.sparkContext.setJobGroup("cell-7", "a cell of a notebook")
    yield "cell-7"
    for name in PROPERTIES:
        spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


def properties(spark: SparkSession) -> list[str | None]:
    return [spark.sparkContext.getLocalProperty(name) for name in PROPERTIES]


def test_the_jobs_of_a_pass_say_stream_step_and_run(
    spark: SparkSession, laid: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "rewrite_or_hide", noting(copy_remaining, tmp_path / "notes"))
    [outcome] = laid.apply()
    assert outcome.value is not None, outcome.sentence
    run = outcome.value.run
    [(group, description, tags)] = noted(tmp_path / "notes")
    assert (group, description) == (run, f"ORDERS: copy rows that stay (run {run})")
    assert run in tags.split(",")
    tracked = spark.sparkContext.statusTracker().getJobIdsForGroup(run)
    assert len(tracked) >= 2, "planning read rows under the same run"
    assert properties(spark) == [None, None]
    assert run not in spark.sparkContext.getJobTags()


def test_the_jobs_of_an_append_say_stream_step_and_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "_write_part", noting(append._write_part, tmp_path / "notes"))
    stream = warehouse_with(tmp_path / "w", "parquet", START).new_stream("ORDERS")
    stream.append(spark.sql("SELECT 'a' subject, 'x' payload"))
    [(group, description, _)] = noted(tmp_path / "notes")
    assert group.startswith("append-")
    assert description == f"ORDERS: append rows (run {group})"
    assert properties(spark) == [None, None]


def test_a_group_of_the_caller_stays_and_the_run_is_a_tag(
    spark: SparkSession, own_group: str
) -> None:
    with labelled(stream="ORDERS", run="r-1"):
        [(group, description, tags)] = SparkEngine(spark).map(called_in_task, [0], [1])
    assert (group, description) == (own_group, "ORDERS: called in task (run r-1)")
    assert "r-1" in tags.split(",")
    assert properties(spark) == [own_group, "a cell of a notebook"]


def test_what_is_done_in_threads_side_by_side_is_told_apart(spark: SparkSession) -> None:
    def named(stream: str) -> tuple[str, str, str]:
        with labelled(stream=stream, step="look"):
            return SparkEngine(spark).map(called_in_task, [0], [1])[0]

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(named, ("A", "B", "C")))
    assert [(group, text) for group, text, _ in found] == [
        (f"retention {stream}", f"{stream}: look") for stream in "ABC"
    ]


def test_a_streaming_query_keeps_the_group_by_which_it_is_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "_write_part", noting(append._write_part, tmp_path / "notes"))
    stream = warehouse_with(tmp_path / "w", "delta", START).new_stream("ORDERS")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    messages = rows.selectExpr("'a' AS subject", "CAST(value AS STRING) AS payload")
    query = messages.writeStream.foreachBatch(stream.sink("q")).start()
    try:
        until = time.monotonic() + PATIENCE_S
        while not list((tmp_path / "notes").iterdir()):
            assert query.isActive, query.exception()
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        query.stop()
    groups = {
        (group, description.partition(" (run")[0])
        for group, description, _ in noted(tmp_path / "notes")
    }
    assert groups == {(str(query.runId), "ORDERS: append rows")}


def test_a_run_whose_group_is_cancelled_ends_in_a_sentence_and_the_old_state(
    spark: SparkSession, laid: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, version = held(laid), laid.stream("ORDERS").opened.store.snapshot().version
    begun, outcomes = tmp_path / "begun", []
    monkeypatch.setattr(stage, "rewrite_or_hide", waiting(copy_remaining, begun))
    thread = threading.Thread(target=lambda: outcomes.extend(laid.apply()))
    thread.start()
    run = wait_for(begun)[0]
    spark.sparkContext.cancelJobGroup(run)
    thread.join()
    [outcome] = outcomes
    assert outcome.exit_code == 130
    assert outcome.sentence.startswith(
        f"ORDERS: copy rows that stay (run {run}): its Spark jobs were cancelled;"
    )
    assert "\n" not in outcome.sentence
    opened = laid.stream("ORDERS").opened
    assert opened.store.snapshot().version == version
    assert held(laid).equals(before)
    assert laid.stream("ORDERS").history() == []
    monkeypatch.undo()
    [again] = laid.apply()
    assert again.value is not None, again.sentence
    assert held(laid).num_rows == 15
    assert all(orphan.what == "data file that no commit names" for orphan in orphans(opened))


def test_an_append_whose_tag_is_cancelled_appends_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, errors = tmp_path / "begun", []
    monkeypatch.setattr(append, "_write_part", waiting(append._write_part, begun))
    stream = warehouse_with(tmp_path / "w", "delta", START).new_stream("ORDERS")

    def appending(frame: DataFrame) -> None:
        try:
            stream.append(frame, writer="w", batch_id=1)
        except CancelledError as error:
            errors.append(error)

    frame = spark.sql("SELECT 'a' subject, 'x' payload")
    thread = threading.Thread(target=appending, args=(frame,))
    thread.start()
    tags = wait_for(begun)[2].split(",")
    [run] = [tag for tag in tags if tag.startswith("append-")]
    spark.sparkContext.cancelJobsWithTag(run)
    thread.join()
    assert len(errors) == 1
    assert list(stream.messages()) == []
    monkeypatch.undo()
    assert not stream.append(frame, writer="w", batch_id=1).duplicate


def test_long_work_says_how_many_of_its_tasks_are_done(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "EVERY_S", 0.2)
    with caplog.at_level(logging.INFO, LOGGER), labelled(stream="ORDERS", run="r-2", step="wait"):
        SparkEngine(spark).map(slow, [0, 1, 2, 3], [1, 1, 1, 1])
    said = [record.getMessage() for record in caplog.records]
    assert said
    assert all(line.startswith("ORDERS: wait (run r-2): ") for line in said)
    assert all(line.endswith(" tasks") for line in said)
