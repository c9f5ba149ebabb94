"""Queries to the workers of a session: their Python, its packages, and the places that they can reach."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf  # noqa: TID251  (built-in functions know no Python)

from retention.engines.spark.engine import SparkEngine
from retention.engines.spark.failures import spark_failures
from retention.storage import files

_TASKS_A_CORE = 4
_LEAST_TASKS = 8


@dataclass(frozen=True)
class Worker:
    """A Python that runs tasks."""

    host: str
    executable: str
    python: str
    """The version of Python."""
    versions: Mapping[str, str | None]
    """Requested module → version of its distribution, empty if it states none; None if the module is missing."""
    code: str
    """The digest of its copy of this package (`code_digest`); empty if it has none, or an older one."""


def workers_of(session: SparkSession, modules: Mapping[str, str]) -> list[Worker]:
    """The Pythons that run the tasks of a session, sorted.

    Args:
        session: the session to query.
        modules: name of each module to look for → its distribution.

    Raises:
        RetentionError: no task runs; states the reason.
    """
    wanted = dict(modules)

    # A nested function is pickled by value, not as a name in this package, which a worker may not have.
    def look(_: int) -> str:
        import importlib.metadata
        import importlib.util
        import socket
        import sys
        import time

        versions: dict[str, str | None] = {}
        for module, distribution in wanted.items():
            versions[module] = None
            if importlib.util.find_spec(module) is not None:
                try:
                    versions[module] = importlib.metadata.version(distribution)
                except importlib.metadata.PackageNotFoundError:
                    versions[module] = ""
        try:
            from retention.engines.spark.task_code import code_digest

            code = code_digest()
        except ImportError:
            code = ""
        # Without a pause, one fast worker would answer for all.
        time.sleep(0.1)
        python = sys.version.split()[0]
        return json.dumps([socket.gethostname(), sys.executable, python, versions, code])

    count = _tasks(session)
    # A worker without Arrow must also answer.
    asking = udf(look, "string", useArrow=False)
    with spark_failures():
        rows = session.range(0, count, 1, count).select(asking("id").alias("worker")).collect()
    return [Worker(*json.loads(answer)) for answer in sorted({row["worker"] for row in rows})]


def has_delta(session: SparkSession) -> bool:
    """Whether a session can read Delta tables as DataFrames."""
    try:
        session.read.format("delta").load(f"/{uuid.uuid4()}").schema  # noqa: B018  (Connect sends the request only now)
    except Exception as error:  # a missing class is reported as the JVM's error or as Spark's own
        return "DATA_SOURCE_NOT_FOUND" not in str(error)
    return True


def places_reached(session: SparkSession, place: str) -> list[str]:
    """The files that tasks, several per core, report to have written to a place.

    Raises:
        OSError: a task cannot write there.
    """
    targets = [files.join(place, str(number)) for number in range(_tasks(session))]
    return SparkEngine(session).map(write_token, targets, [1 << 20] * len(targets))


def write_token(location: str) -> str:
    """Write a file that nothing needs; returns its location."""
    files.replace(location, b"written by a task")
    return location


def lacking(workers: Iterable[Worker], modules: Sequence[str]) -> list[str]:
    """Modules that at least one worker lacks, sorted."""
    return sorted({name for worker in workers for name in modules if worker.versions[name] is None})


def _tasks(session: SparkSession) -> int:
    """A number of tasks large enough for every executor to get one."""
    try:
        cores = int(session.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        # Spark Connect does not disclose it.
        cores = 0
    return max(_LEAST_TASKS, _TASKS_A_CORE * cores)
