"""The page on clusters: checks of its files, its modules and its code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import retention
from retention.api.nats_source import OPTIONS
from retention.doctor.spark import NEEDED, ON_S3
from tests.support.nats_process import admin, nats_process
from tests.support.pages import blocks
from tests.support.sandboxes import ORDERS, configured, lines, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def test_the_dependencies_of_tasks_are_those_that_the_doctor_looks_for() -> None:
    [line] = re.findall(r"has what it depends on \(([^)]+)\)", PAGE, re.DOTALL)
    assert set(re.findall("`([^`]+)`", line)) == {
        *(name for name in NEEDED.values() if name != "lake-retention"),
        *ON_S3.values(),
    }


def test_the_files_that_it_names_are_there() -> None:
    for name in re.findall(r"/srv/lake-retention/((?:jobs|retention)/[\w./-]+)", PAGE):
        assert (ROOT / name).is_file()
    for module in re.findall(r"python -m ([\w.]+)", PAGE):
        assert (ROOT / (module.replace(".", "/") + ".py")).is_file()


@pytest.mark.spark
def test_the_code_for_reading_and_writing_runs(spark: SparkSession, tmp_path: Path) -> None:
    opened(tmp_path, ORDERS).stream("ORDERS").publish(lines(3))
    configured(tmp_path, ORDERS)
    reading, writing, *_ = blocks(PAGE, "python")
    found: dict[str, Any] = {"spark": spark}
    exec(reading.replace("/srv/lake", str(tmp_path)), found)  # noqa: S102
    assert found["orders"].load("ORDERS").count() == 3
    rows = found["orders"].load("ORDERS").select("subject", "payload", "ts_ns")
    rows.write.parquet(str(tmp_path / "arriving"))
    exec(writing.replace("/srv/lake", str(tmp_path)), found)  # noqa: S102
    found["query"].awaitTermination()
    assert found["orders"].load("ORDERS").count() == 6


@pytest.mark.spark
def test_the_code_for_a_live_stream_runs(spark: SparkSession, tmp_path: Path) -> None:
    retention.register(spark)
    with nats_process(tmp_path) as server, admin(server.url) as broker:
        broker.create("ORDERS")
        broker.publish("ORDERS.ann", [b"1", b"2", b"3"])
        configured(tmp_path, {"name": "ORDERS", "sync": {"server": server.url}})
        found: dict[str, Any] = {"spark": spark, "retention": retention}
        for code in (block for block in blocks(PAGE, "python") if 'format("nats")' in block):
            placed = code.replace("/srv/lake", str(tmp_path))
            exec(placed.replace("nats://localhost:4222", server.url), found)  # noqa: S102
            found["query"].awaitTermination()
        assert found["live"].load("ORDERS").count() == 2, "the options of a reader stay"
        assert found["orders"].state().messages == 3
    rows = spark.read.parquet(str(tmp_path / "live")).sort("seq").collect()
    assert [bytes(row.payload) for row in rows] == [b"1", b"2", b"3"]


def test_the_options_of_a_live_stream_are_those_of_the_table() -> None:
    [table] = re.findall(r"\| option \| means \|\n(.*?)\n\n", PAGE, re.DOTALL)
    named = {
        name
        for line in table.splitlines()[1:]
        for name in re.findall("`(\\w+)`", line.split("|")[1])
    }
    assert named | {"path"} == {name for names in OPTIONS.values() for name in names}
