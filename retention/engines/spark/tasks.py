"""Tools that appends of DataFrames share: rows kept between attempts, tasks that answer with values or errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from retention.engines.spark.attempts import CARRIED, outcome_of
from retention.engines.spark.failures import spark_failures
from retention.engines.spark.jobs import watched_jobs
from retention.engines.spark.source import Source
from retention.errors import VerificationError

_OUTCOME = "outcome binary"

Share = TypeVar("Share")
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class KeptFrame:
    """The rows of a DataFrame, kept so that every look at them finds the same."""

    def __init__(self, frame: DataFrame) -> None:
        self._kept = frame.persist(StorageLevel.MEMORY_AND_DISK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.unpersist()


def outcomes(frame: DataFrame, task: Task) -> list[Any]:
    """Run tasks over a frame for what they answer, each with `answer`.

    Raises:
        RetentionError, OSError: the first that one of them answered, or what Spark could not do.
        CancelledError: somebody cancelled the jobs.
    """
    with spark_failures(), watched_jobs(frame.sparkSession):
        received = frame.mapInArrow(task, _OUTCOME).toArrow()
    results = [pickle.loads(raw) for raw in received["outcome"].to_pylist()]  # noqa: S301  (our own)
    for outcome in results:
        if isinstance(outcome, CARRIED):
            raise outcome
    return results


def written_shares(
    source: Source, shares: Sequence[Share], write: Callable[[Share], Any], attempts: int
) -> Iterator[pa.RecordBatch]:
    """Write the shares of one partition, and answer for each what came of it, up to the first error.

    Args:
        source: the partition's rows.
        shares: what they are divided into.
        write: writes one share, and says what came of it.
        attempts: how often Spark tries a task.

    Raises:
        OSError: as `outcome_of`.
    """
    for share in shares:
        outcome = outcome_of(partial(write, share), attempts)
        yield answer(outcome)
        if isinstance(outcome, CARRIED):
            return
    if not source.is_spent:
        yield answer(changed("more rows came than were counted"))


def answer(outcome: Any) -> pa.RecordBatch:
    """A batch for what a task gives back: a value, or the error that ended it."""
    column = pa.array([pickle.dumps(outcome)], pa.binary())
    return pa.RecordBatch.from_arrays([column], names=["outcome"])


def changed(how: str) -> VerificationError:
    """The error that a DataFrame did not give the same rows twice."""
    return VerificationError(
        f"{how}: the DataFrame did not give the same rows twice; nothing was committed; give one that "
        "does, such as one that was saved first"
    )
