"""Attempts at a Spark task: which errors justify a retry, and which attempt is the last."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from retention.engines.spark.connect import setting_of
from retention.errors import RetentionError, UsageError

CARRIED = (RetentionError, OSError)
"""Errors with a remedy, and errors of a disk; they keep their class on the way to the driver."""
Act = Callable[[Iterable[tuple[int, Any]]], Iterator[pa.RecordBatch]]
"""The function of a Spark task, from numbered tasks of the engine to rows for Spark."""
_LOCAL = re.compile(r"local(?:\[[^,\]]*(?:,\s*(?P<failures>\d+)\s*)?\])?")
_DEFAULT = "4"


def local_master(session: SparkSession) -> re.Match[str] | None:
    """The master of a session whose tasks run in one JVM, with its `failures`, if any; None: they run elsewhere."""
    return _LOCAL.fullmatch(setting_of(session, "spark.master") or "")


def attempts_of(session: SparkSession) -> int:
    """The number of times that Spark tries a task of a session before it fails the job."""
    local = local_master(session)
    if local is not None:
        return int(local["failures"] or 1)
    return int(setting_of(session, "spark.task.maxFailures") or _DEFAULT)


def outcome_of(act: Callable[[], Any], attempts: int) -> Any:
    """Execute an act of a task; returns its outcome, a result or the error that ended it.

    Args:
        act: the work of the task.
        attempts: the number of times that Spark tries a task.

    Raises:
        OSError: the storage failed, and a retry by Spark may succeed. The last attempt returns the error instead, so
            that it reaches the driver unchanged.
    """
    try:
        return act()
    except CARRIED as error:
        if may_pass(error) and not _is_last(attempts):
            raise
        return error
    finally:
        _spare_modules()


def may_pass(error: Exception) -> bool:
    """Whether a retry may succeed: a storage error that is not a usage error."""
    is_usage = getattr(error, "exit_code", None) == UsageError.exit_code
    return isinstance(error, OSError) and not is_usage


@cache
def _spare_modules() -> None:
    """Exclude everything loaded so far from garbage collection, once.

    Spark's Python collects after every task, and would traverse all modules each time.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def _is_last(attempts: int) -> bool:
    task = TaskContext.get()
    return task is None or task.attemptNumber() + 1 >= attempts
