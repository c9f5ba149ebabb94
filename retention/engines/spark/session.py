"""The Spark session for work: the active one, or one tuned for this machine and stopped at the end."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import Popen
from typing import TYPE_CHECKING, TypeVar

from retention.engines.spark.connect import REMOTE, is_stopped, reach, setting_of
from retention.engines.spark.jars import delta_jars, s3a_jars
from retention.engines.spark.java import launch_environment
from retention.engines.spark.versions import is_too_old, refuse_too_old, warn_of_untested
from retention.errors import BusyError, RetentionError, UsageError
from retention.storage.signals import handlers_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answer = TypeVar("Answer")

GIB = 1024**3
_SIGNALLED = 128
"""Shell exit codes above this mean that a signal ended the command."""
TASK_ATTEMPTS = 4
"""The number of tries of a task, as on a cluster; in one process, Spark's default is one."""
_COLLECTOR = "-XX:+UseParallelGC"
"""The cheapest garbage collector of Java: rows only pass through the JVM, and pauses do not matter."""
_COMPILER = " ".join(
    (
        "-XX:Tier4InvocationThreshold=50000",
        "-XX:Tier4MinInvocationThreshold=6000",
        "-XX:Tier4CompileThreshold=150000",
        "-XX:Tier4BackEdgeThreshold=400000",
    )
)
"""Ten times Java's own bounds for its second compiler, which takes longer over a short run than its code saves."""
_JAVA_READS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables with a user's own Java flags."""
_LOG4J = Path(__file__).with_name("log4j2.properties")


@contextlib.contextmanager
def session(app_name: str = "retention", *, java_options: str = "") -> Iterator[SparkSession]:
    """The active session, left running; or a new one, as `build_session`, stopped at the end.

    Raises:
        UsageError: the active session's Spark is too old; or as `build_session`.
        RetentionError: Spark did not start; or as `spark_failures`, of the block.
    """
    running = active_session()
    with contextlib.ExitStack() as stack:
        if running is None:
            running = build_session(app_name, java_options=java_options)
            stack.callback(_stop, running)
        else:
            refuse_too_old(running.version)
            warn_of_untested(running.version)
        from retention.engines.spark.failures import spark_failures

        stack.enter_context(spark_failures())
        yield running


def active_session() -> SparkSession | None:
    """The caller's existing session, unless its driver has ended.

    Finding that there is none does not load pyspark.
    """
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return _unless_gone(SparkSession.active)
    except PySparkRuntimeError:
        return None


def refuse_stopped(given: SparkSession) -> None:
    """Refuse a stopped session, and so every DataFrame of it.

    Raises:
        UsageError: it was stopped.
    """
    if is_stopped(given):
        raise UsageError(
            "this Spark session was stopped, and DataFrames that were made in it with it; nothing was done; make them "
            "anew in a session that runs"
        )


def suits_work() -> bool:
    """Whether Spark can run work: it is installed, and the active session, if any, is not too old."""
    running = active_session()
    if running is None:
        return find_spec("pyspark") is not None
    return not is_too_old(running.version)


def application_id(running: SparkSession) -> str | None:
    """The id by which a cluster lists a session's application; None if the session has ended or has no id."""
    return _unless_gone(partial(setting_of, running, "spark.app.id"))


def build_session(app_name: str = "retention", *, java_options: str = "") -> SparkSession:
    """Start a session with Delta, tuned for this machine.

    Under `spark-submit`, this is the submitted session; if `SPARK_REMOTE` names a Spark Connect server, a session of
    that server.

    Args:
        app_name: its name in Spark.
        java_options: more flags for the JVM.

    Raises:
        UsageError: Java or Delta's JARs are missing, no Delta is known for this Spark, or it is too old; or a package
            for Spark Connect is missing, or its server does not answer.
        RetentionError: Spark did not start; a `BusyError` if its driver ended meanwhile.
    """
    is_there = "PYSPARK_GATEWAY_PORT" in os.environ or REMOTE in os.environ
    if REMOTE in os.environ:
        reach(os.environ[REMOTE])
    environment = {} if is_there else launch_environment()
    settings = {} if is_there else _settings(java_options)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    logging.getLogger().addFilter(_is_not_of_gateway)
    try:
        with _environment(environment), handlers_kept():
            started = builder.getOrCreate()
        version = started.version
    except Exception as error:
        known = _start_failure(error)
        if known is None:
            raise
        raise known from error
    refuse_too_old(version)
    warn_of_untested(version)
    return started


def _is_not_of_gateway(record: logging.LogRecord) -> bool:
    """Whether a record is not from py4j; py4j logs the trace of a lost connection in addition to raising it."""
    return Path(record.pathname).parent.name != "py4j"


def _start_failure(error: Exception) -> RetentionError | None:
    """The error for a session that did not start; None if the cause is unknown."""
    from pyspark.errors import PySparkException

    from retention.engines.spark.failures import GONE, is_gone

    if is_gone(error) or _was_killed(error):
        _forget_driver()
        return BusyError(GONE)
    if not isinstance(error, PySparkException):
        return None
    why = error.getCondition()
    return RetentionError(f"Spark did not start ({why}): `{sys.executable} -m pyspark` shows why.")


def _was_killed(error: Exception) -> bool:
    """Whether a signal ended the JVM that pyspark waited for; only the waiting stack frame has the process."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    processes = (frame.f_locals.get("proc") for frame in frames)
    codes = [process.returncode or 0 for process in processes if isinstance(process, Popen)]
    return any(code < 0 or code > _SIGNALLED for code in codes)


def _stop(started: SparkSession) -> None:
    """Stop a session; if its driver has ended, nothing remains to stop, and its work raises its own error."""
    from retention.engines.spark.failures import is_gone

    try:
        started.stop()
    except Exception as error:
        if not is_gone(error):
            raise
        _forget_driver()


def _unless_gone(ask: Callable[[], Answer]) -> Answer | None:
    """The driver's answer to a query; None if the driver has ended."""
    from retention.engines.spark.failures import is_gone

    try:
        return ask()
    except Exception as error:
        if not is_gone(error):
            raise
        return None


def _forget_driver() -> None:
    """Make pyspark start another driver next time; it caches its connection to the ended one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    for held in ("_gateway", "_jvm", "_active_spark_context"):
        setattr(SparkContext, held, None)
    for held in ("_instantiatedSession", "_activeSession"):
        setattr(SparkSession, held, None)


def _settings(java_options: str) -> dict[str, str]:
    """Settings for one machine; Spark's defaults are for a cluster and up to ten times slower here."""
    cores = str(os.cpu_count() or 1)
    given = " ".join([java_options, *(os.environ.get(name, "") for name in _JAVA_READS)])
    # Java does not start with two collectors.
    collector = "" if "GC" in given else _COLLECTOR
    logging_file = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    options = " ".join([logging_file, collector, _COMPILER, java_options]).strip()
    from retention.engines.spark.arrow_batches import BY_ROWS
    from retention.engines.spark.s3a import s3a_settings

    s3a = s3a_jars()
    reach = s3a_settings() if s3a else {}
    return reach | {
        "spark.master": f"local[*,{TASK_ATTEMPTS}]",
        "spark.jars": ",".join(str(jar) for jar in [*delta_jars(), *s3a]),
        "spark.driver.memory": f"{_driver_memory() // 1024**2}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "retention-spark-warehouse")),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": cores,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **BY_ROWS,
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def _driver_memory() -> int:
    """A quarter of the machine's memory in bytes, between 1 and 4 GiB; the driver's JVM also runs the tasks."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(memory // 4, GIB), 4 * GIB)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while Spark starts."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
