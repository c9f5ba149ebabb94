"""The page on clusters: checks of its sentences with exit codes, its files and its modules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.doctor.spark import NEEDED, ON_S3
from retention.engines.spark.failures import CAUSES, GONE
from retention.errors import BusyError
from tests.support.pages import blocks
from tests.support.sandboxes import ORDERS, configured, lines, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")


def test_each_sentence_about_spark_is_in_the_table_with_its_code() -> None:
    head = "| sentence begins with | means | code |\n|---|---|---|\n"
    rows = PAGE.split(head)[1].split("\n\n")[0].splitlines()
    table = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    sentences = [(sentence, kind.exit_code) for _, kind, sentence in CAUSES]
    sentences.append((GONE, BusyError.exit_code))
    assert len(table) == len(sentences)
    for sentence, code in sentences:
        [stated] = [
            row[2] for row in table if re.match(re.escape(row[0]).replace("…", ".*"), sentence)
        ]
        assert int(stated) == code


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
    reading, writing = blocks(PAGE, "python")
    found: dict[str, Any] = {"spark": spark}
    exec(reading.replace("/srv/lake", str(tmp_path)), found)  # noqa: S102
    assert found["orders"].load("ORDERS").count() == 3
    rows = found["orders"].load("ORDERS").select("subject", "payload", "ts_ns")
    rows.write.parquet(str(tmp_path / "arriving"))
    exec(writing.replace("/srv/lake", str(tmp_path)), found)  # noqa: S102
    found["query"].awaitTermination()
    assert found["orders"].load("ORDERS").count() == 6
