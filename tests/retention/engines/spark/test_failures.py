"""Shortened error texts of Spark on a real cluster, and our sentences for them."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from retention.engines.spark.failures import failure_of, spark_failures
from retention.errors import BusyError, RetentionError, UsageError

_AWAITED = (
    "An error occurred while calling o53.getResult.\n: org.apache.spark.SparkException: Exception thrown in "
    "awaitResult: \n\tat java.base/java.lang.Thread.run(Thread.java:840)\nCaused by: org.apache.spark.SparkException: "
    "Job aborted due to stage failure: "
)
_PYTHON = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
_LOST = (
    "Task 1 in stage 8.0 failed 4 times, most recent failure: Lost task 1.3 in stage 8.0 (TID 53) "
)
SAID = {
    "package": (
        f"{_PYTHON}ModuleNotFoundError: No module named 'retention'",
        UsageError,
        "does not have this package (retention); set PYSPARK_PYTHON to",
    ),
    "older package": (
        f"{_PYTHON}ModuleNotFoundError: No module named 'retention.core.spans'",
        UsageError,
        "another version of this package than the driver (No module named 'retention.core.spans')",
    ),
    "older module": (
        f"{_PYTHON}AttributeError: Can't get attribute 'act' on <module 'retention.core' from '/a/core.py'>",
        UsageError,
        "another version of this package than the driver (Can't get attribute 'act' on <module 'retention.core' from",
    ),
    "other code": (
        f"{_PYTHON}retention.engines.spark.task_code.OtherCodeError: /a/package.zip/retention on worker-1",
        UsageError,
        "(/a/package.zip/retention on worker-1), which may have other rules; no table was changed",
    ),
    "dependency": (
        f"{_PYTHON}No module named 'xxhash'",
        UsageError,
        "workers' Python lacks xxhash; set PYSPARK_PYTHON to a Python of the workers that has it (the driver's is /",
    ),
    "arrow": (
        f"{_PYTHON}[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.",
        UsageError,
        "workers' Python lacks PyArrow;",
    ),
    "version": (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10 than that in driver: 3.11, PySpark "
        "cannot run with different minor versions.",
        UsageError,
        "the workers run Python 3.10, the driver runs 3.11",
    ),
    "no python": (
        f'{_AWAITED}java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file',
        UsageError,
        "the workers cannot start the Python ./environment/bin/python; set PYSPARK_PYTHON",
    ),
    "broken python": (
        f"{_AWAITED}{_LOST}: org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent "
        'call last):\n    File "<frozen runpy>", line 1\n  LookupError: no codec\nPYTHONPATH was:\n  /a/b\norg.apache',
        UsageError,
        "the workers' Python does not start (LookupError: no codec); set PYSPARK_PYTHON",
    ),
    "results": (
        f"{_AWAITED}Total size of serialized results of 1 tasks (2.9 MiB) is bigger than spark.driver.maxResultSize "
        "(1024.0 KiB)",
        UsageError,
        "(2.9 MiB) is more than spark.driver.maxResultSize (1024.0 KiB) lets through",
    ),
    "executor": (
        f"{_AWAITED}{_LOST}(127.0.0.1 executor 6): ExecutorLostFailure (executor 6 exited caused by one of the running "
        "tasks) Reason: Command exited with code 137\nDriver stacktrace:",
        BusyError,
        "again and again (exited caused by one of the running tasks: Command exited with code 137)",
    ),
    "unrelated": (
        f"{_AWAITED}{_LOST}(h executor 6): ExecutorLostFailure (executor 6 exited unrelated to the running tasks)",
        BusyError,
        "again and again (exited unrelated to the running tasks)",
    ),
    "worker": (
        f"{_AWAITED}{_LOST}: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).",
        BusyError,
        "the Python of a task died again and again",
    ),
    "slow python": (
        f"{_AWAITED}{_LOST}: org.apache.spark.SparkException: Python worker failed to connect back.",
        BusyError,
        "a Python of Spark did not start within ten seconds",
    ),
    "python's memory": (
        f'{_PYTHON}  File "/a/block_files.py", line 50, in write_blocks\nMemoryError\n SQLSTATE: 38000',
        BusyError,
        "the Python of a task ran out of memory; no table was changed",
    ),
    "arrow's memory": (
        f"{_PYTHON}pyarrow.lib.ArrowMemoryError: malloc of size 67108864 failed",
        BusyError,
        "the Python of a task ran out of memory; no table was changed",
    ),
    "executor's memory": (
        f"{_AWAITED}{_LOST}(h executor 6): java.lang.OutOfMemoryError: Java heap space\n\tat java.util",
        BusyError,
        "a Spark executor ran out of memory (Java heap space)",
    ),
    "driver's memory": (
        "An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: GC overhead limit exceeded\n\tat java",
        UsageError,
        "Spark's driver ran out of memory (GC overhead limit exceeded)",
    ),
    "stopped": (
        f"{_AWAITED}Job 3 cancelled because SparkContext was shut down",
        BusyError,
        "Spark was stopped while it worked",
    ),
}


@pytest.mark.parametrize(("text", "kind", "sentence"), SAID.values(), ids=SAID)
@pytest.mark.parametrize("raised", [PySparkException, Py4JError])
def test_a_known_cause_is_one_sentence(
    raised: type[Exception], text: str, kind: type[RetentionError], sentence: str
) -> None:
    with pytest.raises(kind) as met, spark_failures():
        raise raised(text)
    assert sentence in str(met.value)
    assert "\n" not in str(met.value)
    assert "{" not in str(met.value)
    assert met.value.exit_code in (2, 75)
    assert isinstance(met.value.__cause__, raised)


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o42.collectToPython"),
        ConnectionRefusedError(111, ""),
    ],
)
def test_a_driver_that_is_gone_is_one_sentence(error: Exception) -> None:
    with pytest.raises(BusyError, match="Spark's driver is gone"), spark_failures():
        raise error


def test_what_is_not_known_stays_what_it_is() -> None:
    answered = Py4JError("An error occurred while calling o42.f. Trace:\npy4j.Py4JException: no f")
    assert failure_of(answered) is None
    unknown = PySparkException(f"{_PYTHON}ValueError: a bug")
    assert failure_of(unknown) is None
    with pytest.raises(PySparkException) as met, spark_failures():
        raise unknown
    assert met.value is unknown
    with pytest.raises(FileNotFoundError), spark_failures():
        raise FileNotFoundError(2, "")
