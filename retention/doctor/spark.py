"""Checks of Spark in the same session that jobs use: the packages of its tasks, and the locations they reach."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING

from retention.core.wording import counted
from retention.doctor.finding import Finding, ok, problem, problem_of_error, warning
from retention.engines.spark.session import session
from retention.errors import RetentionError
from retention.storage import files
from retention.stores.checks.capability_probe import trial_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retention.engines.spark.workers import Worker

NEEDED = {
    "retention": "lake-retention",
    "pyarrow": "pyarrow",
    "numpy": "numpy",
    "pandas": "pandas",
    "pydantic": "pydantic",
    "xxhash": "xxhash",
    "pyroaring": "pyroaring",
}
"""Module that tasks import → its distribution."""
ON_S3 = {"obstore": "obstore", "google_crc32c": "google-crc32c"}
"""Module → distribution, for tasks that write to an object store."""
_PACK = (
    "submit with what `retention package --venv FILE` or `--py-files FILE` packs (docs/spark.md), or install this "
    "package on every worker"
)
_SAME_PYTHON = "point PYSPARK_PYTHON at the same Python everywhere, or bring one with `retention package --venv FILE`"


def check_spark(locate: Callable[[], str]) -> Iterator[Finding]:
    """Start the session of jobs, or use the active one, and test it.

    Args:
        locate: the warehouse's location; an invalid configuration is reported by another check.
    """
    try:
        with session("retention doctor") as spark:
            yield from _tried(spark, locate)
    except RetentionError as error:
        yield problem_of_error("spark session", error)


def _tried(spark: SparkSession, locate: Callable[[], str]) -> Iterator[Finding]:
    from retention.engines.spark.workers import lacking, workers_of

    try:
        location: str | None = locate()
    except RetentionError:
        location = None
    wanted = NEEDED | (ON_S3 if location is not None and files.is_remote(location) else {})
    yield ok("spark session", f"Spark {spark.version} started")
    try:
        workers = workers_of(spark, wanted)
    except RetentionError as error:
        yield problem_of_error("spark workers", error)
        return
    except Exception as error:  # any error of a cluster is the finding
        text = next(iter(str(error).splitlines()), type(error).__name__)
        yield problem("spark workers", f"a Spark task failed: {text}", "look at Spark's own log")
        return
    yield _pythons(workers)
    missing = lacking(workers, list(wanted))
    if missing:
        hosts = ", ".join(sorted({worker.host for worker in workers if lacking([worker], missing)}))
        detail = f"the Python of the workers on {hosts} lacks {', '.join(missing)}"
        yield problem("spark packages", detail, _PACK)
    else:
        yield _versions(workers, wanted)
    yield _delta(spark)
    if location is not None and not missing:
        yield _warehouse(spark, location)


def _pythons(workers: list[Worker]) -> Finding:
    here = sys.version.split()[0]
    pythons = ", ".join(
        sorted({f"{worker.python} ({worker.executable} on {worker.host})" for worker in workers})
    )
    detail = f"workers run Python {pythons}, the driver Python {here} ({sys.executable})"
    minors = {worker.python.rpartition(".")[0] for worker in workers}
    if minors != {here.rpartition(".")[0]}:
        return problem("spark workers", detail, _SAME_PYTHON)
    return ok("spark workers", detail)


def _versions(workers: list[Worker], wanted: Mapping[str, str]) -> Finding:
    """Compare the workers' packages with the driver's; a package shipped as a zip has no version."""
    from retention.engines.spark.task_code import code_digest

    strange = sorted({worker.host for worker in workers if worker.code != code_digest()})
    if strange:
        detail = f"the workers on {', '.join(strange)} have another version of this package than the driver"
        return problem("spark packages", detail, _PACK)
    here = {module: _version(name) for module, name in wanted.items()}
    others = sorted(
        {
            f"{wanted[module]} {there} on {worker.host} ({here[module]} here)"
            for worker in workers
            for module, there in worker.versions.items()
            if there and here[module] and there != here[module]
        }
    )
    if others:
        return warning(
            "spark packages",
            f"workers have other versions than the driver: {', '.join(others)}",
            "install the same versions everywhere, or bring them with `retention package --venv FILE`",
        )
    return ok(
        "spark packages",
        f"workers have the driver's versions of {', '.join(sorted(set(wanted.values())))}",
    )


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _delta(spark: SparkSession) -> Finding:
    from retention.engines.spark.workers import has_delta

    if has_delta(spark):
        return ok("spark delta", "the session reads and writes Delta tables")
    return warning(
        "spark delta",
        "the session has no Delta, so that `read`, `ingest` of Delta tables and deletion vectors fail; passes and "
        "appends need none",
        "give it Delta's JARs (docs/spark.md)",
    )


def _warehouse(spark: SparkSession, location: str) -> Finding:
    """Let tasks write to the warehouse, and verify that the driver can read the files."""
    from retention.engines.spark.workers import places_reached

    check = "spark warehouse"
    shared = "keep the warehouse where all of them see it: an object store, or a file system that is mounted everywhere"
    try:
        with trial_place(location) as trial:
            written = places_reached(spark, trial)
            unseen = len(written) - len(files.names(trial))
    except (OSError, RetentionError) as error:
        return problem(check, f"{location}: a task cannot write there ({error})", shared)
    if unseen:
        written_there = counted(len(written), "file")
        detail = (
            f"{location}: tasks wrote {written_there} there, and the driver does not see {unseen}"
        )
        return problem(check, detail, shared)
    return ok(check, f"tasks write to {location}, and the driver reads it")
