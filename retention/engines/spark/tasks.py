"""What appends of DataFrames share: rows kept between attempts, and tasks that answer with values or errors."""

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
from retention.engines.spark.source import Source
from retention.errors import VerificationError

PART_BITS = 33
"""`monotonically_increasing_id` counts rows in the low bits, and partitions above them."""
_OUTCOME = "outcome binary"

Share = TypeVar("Share")
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class KeptFrame:
    """The rows of a sorted DataFrame, kept so that every look at them finds the same."""

    def __init__(self, frame: DataFrame) -> None:
        self._sorted = frame.persist(StorageLevel.MEMORY_AND_DISK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sorted.unpersist()


def outcomes(frame: DataFrame, task: Task) -> list[Any]:
    """What tasks over a frame answer, each with `answer`.

    Raises:
        RetentionError, OSError: the first that one of them answered.
    """
    received = frame.mapInArrow(task, _OUTCOME).toArrow()
    found = [pickle.loads(one) for one in received["outcome"].to_pylist()]  # noqa: S301  (our own)
    for outcome in found:
        if isinstance(outcome, CARRIED):
            raise outcome
    return found


def written_shares(
    source: Source, shares: Sequence[Share], write: Callable[[Share], Any], attempts: int
) -> Iterator[pa.RecordBatch]:
    """What a task answers that writes the shares of one partition, up to the first error.

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
    """What a task gives back: a value, or the error that ended it."""
    column = pa.array([pickle.dumps(outcome)], pa.binary())
    return pa.RecordBatch.from_arrays([column], names=["outcome"])


def changed(how: str) -> VerificationError:
    """That a DataFrame did not give the same rows twice."""
    return VerificationError(
        f"{how}: the DataFrame did not give the same rows twice; nothing was committed; give one that "
        "does, such as one that was saved first"
    )
