from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from retention.engines.spark import session as session_module
from retention.engines.spark.failures import GONE
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


def test_a_collector_that_somebody_chose_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def options(given: str = "") -> str:
        return session_module._settings(given)["spark.driver.extraJavaOptions"]

    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    assert "-XX:+UseParallelGC" in options()
    assert options("-XX:+UseSerialGC").count("GC") == 1
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")
    assert "GC" not in options()


def test_java_takes_the_last_flag_which_is_the_callers() -> None:
    given = "-XX:Tier4InvocationThreshold=1"
    options = session_module._settings(given)["spark.driver.extraJavaOptions"].split()
    chosen = [option for option in options if option.startswith("-XX:Tier4InvocationThreshold=")]
    assert chosen == ["-XX:Tier4InvocationThreshold=50000", given]


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


_KILL = (
    "import os, signal\n"
    "from pyspark import SparkContext\n"
    "def kill():\n"
    "    driver = SparkContext._gateway.proc\n"
    "    os.kill(driver.pid, signal.SIGKILL)\n"
    "    driver.wait()\n"
)


@pytest.mark.thorough
@pytest.mark.spark
def test_a_driver_that_is_killed_is_one_sentence_and_another_can_be_started() -> None:
    done = run(
        f"{_KILL}"
        "from retention.engines.select import Engines\n"
        "from retention.engines.spark.session import active_session\n"
        "from retention.errors import BusyError\n"
        "def fail():\n"
        "    try:\n"
        "        engines.pick('spark', 1, 0).map(str, [1], [1])\n"
        "    except BusyError as error:\n"
        "        print(error)\n"
        "with Engines('spark') as engines:\n"
        "    engines.session()\n"
        "    kill()\n"
        "    fail()\n"
        "    fail()\n"
        "    assert engines.application() is None\n"
        "    assert active_session() is None\n"
        "assert SparkContext._gateway is None\n"
        "assert active_session() is None\n"
    )
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == ([GONE, GONE], "", 0)


@pytest.mark.spark
def test_a_session_that_was_stopped_is_refused(tmp_path: Path) -> None:
    done = run(
        "from retention.engines.spark.session import build_session\n"
        "from retention.errors import UsageError\n"
        "from tests.support.sandboxes import ORDERS, opened\n"
        "from pathlib import Path\n"
        f"stream = opened(Path({str(tmp_path)!r}), ORDERS).stream('ORDERS')\n"
        "spark = build_session()\n"
        "frame = spark.createDataFrame([('orders.a', b'')], ['subject', 'payload'])\n"
        "spark.stop()\n"
        "build_session()\n"
        "for use in (stream.append, lambda given: stream.sink('query')(given, 0)):\n"
        "    try:\n"
        "        use(frame)\n"
        "    except UsageError as error:\n"
        "        print(error)\n"
        "try:\n"
        "    stream.read(spark)\n"
        "except UsageError as error:\n"
        "    print(error)\n"
    )
    first, second, third = done.stdout.splitlines()
    assert first == second == third
    assert first.startswith("this Spark session was stopped, ")


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.parametrize(
    "begin",
    [
        "java_gateway.Popen = lambda _, **how: Popen(['sh', '-c', 'kill -9 $$'], **how)\n",
        "SparkContext._initialize_context = lambda *_: (kill(), SparkContext._jvm.System.gc())\n",
    ],
    ids=["before it answers", "when it has answered"],
)
def test_a_driver_that_is_killed_while_it_starts_is_one_sentence(begin: str) -> None:
    done = run(
        f"{_KILL}"
        "from subprocess import Popen\n"
        "from pyspark import java_gateway\n"
        "from retention.engines.spark.session import build_session\n"
        "from retention.errors import BusyError\n"
        f"{begin}"
        "try:\n"
        "    build_session()\n"
        "except BusyError as error:\n"
        "    print(error)\n"
        "assert SparkContext._gateway is None\n"
    )
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == ([GONE], "", 0)


@pytest.mark.spark
def test_a_session_says_its_application(spark: SparkSession) -> None:
    assert application_id(spark) == spark.sparkContext.applicationId
