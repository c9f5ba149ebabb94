"""Attempts at a Spark task: which errors are worth another one, and which attempt is the last."""

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
"""Errors that say what to do, and those of a disk: they keep their class on the way to the driver."""
Act = Callable[[Iterable[tuple[int, Any]]], Iterator[pa.RecordBatch]]
"""A function of a Spark task, given numbered tasks of the engine; it gives rows that Spark passes on."""
_LOCAL = re.compile(r"local(?:\[[^,\]]*(?:,\s*(?P<failures>\d+)\s*)?\])?")
_DEFAULT = "4"


def attempts_of(session: SparkSession) -> int:
    """Number of times that Spark tries a task of a session before it gives the work up."""
    local = _LOCAL.fullmatch(setting_of(session, "spark.master") or "")
    if local is not None:
        return int(local["failures"] or 1)
    return int(setting_of(session, "spark.task.maxFailures") or _DEFAULT)


def outcome_of(act: Callable[[], Any], attempts: int) -> Any:
    """Carry out an act of a task for the outcome that the task answers with: a result, or the error that ended it.

    Args:
        act: what the task does.
        attempts: how often Spark tries a task.

    Raises:
        OSError: the storage failed, which may be over when Spark tries again. The last attempt answers with it, so
            that it reaches the driver as what it is.
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
    """Whether what ended a task may be gone on another try: the storage failed, and not for what it was asked."""
    is_usage = getattr(error, "exit_code", None) == UsageError.exit_code
    return isinstance(error, OSError) and not is_usage


@cache
def _spare_modules() -> None:
    """Let collections of garbage pass over what this process has loaded by now, once.

    Spark's Python collects behind every task, and would look through all modules each time.
    """
    if TaskContext.get() is not None:
        gc.freeze()


def _is_last(attempts: int) -> bool:
    task = TaskContext.get()
    return task is None or task.attemptNumber() + 1 >= attempts
