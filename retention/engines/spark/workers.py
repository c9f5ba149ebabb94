"""Questions to the workers of a session: their Python, its packages, and the places that they can reach."""

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
    """Its version."""
    versions: Mapping[str, str | None]
    """Module that was asked for → version of what it belongs to, empty if it states none; None: there is none."""
    code: str
    """The digest of its copy of this package (`code_digest`); empty: it has none, or an older one."""


def workers_of(session: SparkSession, modules: Mapping[str, str]) -> list[Worker]:
    """The Pythons that run the tasks of a session, sorted.

    Args:
        session: what is asked.
        modules: name of each module to look for → the distribution that it belongs to.

    Raises:
        RetentionError: no task runs, and why.
    """
    wanted = dict(modules)

    # A function inside of one travels as it is, not as a name of this package, which a worker may not have.
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
        # Somebody who answers at once would answer for all.
        time.sleep(0.1)
        python = sys.version.split()[0]
        return json.dumps([socket.gethostname(), sys.executable, python, versions, code])

    count = _tasks(session)
    # A worker without Arrow is to answer, too.
    asking = udf(look, "string", useArrow=False)
    with spark_failures():
        rows = session.range(0, count, 1, count).select(asking("id").alias("worker")).collect()
    return [Worker(*json.loads(answer)) for answer in sorted({row["worker"] for row in rows})]


def has_delta(session: SparkSession) -> bool:
    """Whether a session can read tables of Delta as DataFrames."""
    try:
        session.read.format("delta").load(f"/{uuid.uuid4()}").schema  # noqa: B018  (Connect asks only now)
    except (
        Exception
    ) as error:  # a class that is not there is told as the JVM's error, or as Spark's own
        return "DATA_SOURCE_NOT_FOUND" not in str(error)
    return True


def places_reached(session: SparkSession, place: str) -> list[str]:
    """The files that tasks, several on each core, have written to a place, by what they say.

    Raises:
        OSError: a task cannot write there.
    """
    targets = [files.join(place, str(number)) for number in range(_tasks(session))]
    return SparkEngine(session).map(write_token, targets, [1 << 20] * len(targets))


def write_token(location: str) -> str:
    """Write a file that nothing rests on; its location."""
    files.replace(location, b"written by a task")
    return location


def lacking(workers: Iterable[Worker], modules: Sequence[str]) -> list[str]:
    """Modules that a worker does not have, sorted."""
    return sorted({name for worker in workers for name in modules if worker.versions[name] is None})


def _tasks(session: SparkSession) -> int:
    """A number of tasks of which every executor gets one."""
    try:
        cores = int(session.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        # Spark Connect does not say.
        cores = 0
    return max(_LEAST_TASKS, _TASKS_A_CORE * cores)
