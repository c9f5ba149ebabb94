"""The Spark session that work runs in: the active one, or one tuned for this machine and stopped at the end."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from retention.engines.spark.connect import REMOTE, reach, setting_of
from retention.engines.spark.jars import delta_jars, s3a_jars
from retention.engines.spark.java import launch_environment
from retention.engines.spark.versions import is_too_old, refuse_too_old, warn_of_untested
from retention.errors import RetentionError
from retention.storage.signals import handlers_kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIB = 1024**3
TASK_ATTEMPTS = 4
"""Number of tries of a task, as on a cluster; in one process Spark would otherwise try it once."""
_LOG4J = Path(__file__).with_name("log4j2.properties")


@contextlib.contextmanager
def session(app_name: str = "retention") -> Iterator[SparkSession]:
    """The active session, left running; or a new one, stopped at the end.

    Raises:
        UsageError: the active session's Spark is too old; or as `build_session`.
        RetentionError: Spark did not start.
    """
    running = active_session()
    if running is not None:
        refuse_too_old(running.version)
        warn_of_untested(running.version)
        yield running
        return
    started = build_session(app_name)
    try:
        yield started
    finally:
        started.stop()


def active_session() -> SparkSession | None:
    """The session that the caller already has; pyspark is not loaded to find that there is none."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def suits_work() -> bool:
    """Whether work can be given to Spark: it is installed, and no session would be used that is too old."""
    running = active_session()
    if running is None:
        return find_spec("pyspark") is not None
    return not is_too_old(running.version)


def application_id(running: SparkSession) -> str | None:
    """The id under which a cluster lists a session's application; None where the session cannot say."""
    return setting_of(running, "spark.app.id")


def build_session(app_name: str = "retention", *, java_options: str = "") -> SparkSession:
    """Start a session with Delta, tuned for this machine.

    Under `spark-submit` it is the one that was submitted; where `SPARK_REMOTE` names a Spark Connect server, one of
    that server's.

    Args:
        app_name: what Spark calls it.
        java_options: more flags for the JVM.

    Raises:
        UsageError: Java or Delta's JARs are missing, no Delta is known for this Spark, or it is too old; or what Spark
            Connect needs is missing, or its server does not answer.
        RetentionError: Spark did not start.
    """
    is_there = "PYSPARK_GATEWAY_PORT" in os.environ or REMOTE in os.environ
    if REMOTE in os.environ:
        reach(os.environ[REMOTE])
    environment = {} if is_there else launch_environment()
    settings = {} if is_there else _settings(java_options)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with _environment(environment), handlers_kept():
            started = builder.getOrCreate()
    except PySparkException as error:
        raise RetentionError(
            f"Spark did not start ({error.getCondition()}): `{sys.executable} -m pyspark` shows why."
        ) from error
    refuse_too_old(started.version)
    warn_of_untested(started.version)
    return started


def _settings(java_options: str) -> dict[str, str]:
    """Settings for one machine; Spark's defaults are for a cluster, and up to ten times slower here."""
    cores = str(os.cpu_count() or 1)
    options = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()} {java_options}".strip()
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
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def _driver_memory() -> int:
    """A quarter of the machine's memory in bytes, between 1 and 4 GiB: the driver's JVM also runs the tasks."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(memory // 4, GIB), 4 * GIB)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the time it takes to start Spark."""
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
