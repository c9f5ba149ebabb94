from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from retention.engines.spark.session import active_session, application_id, session


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.spark
def test_an_active_session_is_used_and_left_running(spark: SparkSession) -> None:
    with session() as used:
        assert used.sparkContext.applicationId == spark.sparkContext.applicationId
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_an_active_session_is_seen_from_another_thread(spark: SparkSession) -> None:
    seen: list[SparkSession | None] = []
    thread = threading.Thread(target=lambda: seen.append(active_session()))
    thread.start()
    thread.join()
    assert seen[0] is not None
    assert seen[0].sparkContext.applicationId == spark.sparkContext.applicationId


@pytest.mark.spark
def test_a_session_of_ours_reads_and_writes_delta_in_utc(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "table")
    spark.range(5).write.format("delta").save(table)
    assert spark.read.format("delta").load(table).count() == 5
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.spark
def test_starting_spark_says_nothing_and_leaves_the_environment_alone(spark: SparkSession) -> None:
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON")}
    done = run(
        "import os\n"
        "from retention.engines.spark.session import active_session, session\n"
        "with session() as spark:\n"
        "    assert spark.range(3).count() == 3\n"
        f"assert {before!r} == {{name: os.environ.get(name) for name in {list(before)!r}}}\n"
        "assert active_session() is None\n"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.spark
def test_a_spark_that_cannot_start_is_one_sentence() -> None:
    done = run(
        "from retention.engines.spark.session import build_session\n"
        "from retention.errors import RetentionError\n"
        "try:\n"
        "    build_session(java_options='-agentlib:nothing')\n"
        "except RetentionError as error:\n"
        "    print(error)\n"
    )
    said = done.stdout.splitlines()
    assert said[-1].startswith("Spark did not start (")
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.spark
def test_a_session_says_its_application(spark: SparkSession) -> None:
    assert application_id(spark) == spark.sparkContext.applicationId
