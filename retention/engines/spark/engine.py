"""The Spark engine: groups of tasks become Spark tasks, which run the same functions as the local engine."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from retention.core.labels import current_label, labelled
from retention.engine_port import Fold, Gathering, Part, Read, Result, Task, run_task
from retention.engines.bin_packing import groups
from retention.engines.local import THREADS, LocalEngine
from retention.engines.spark.attempts import CARRIED, Act, attempts_of, local_master, outcome_of
from retention.engines.spark.connect import find_parallelism, is_connect
from retention.engines.spark.failures import spark_failures
from retention.engines.spark.grouping import columns_of, folded, reading
from retention.engines.spark.jobs import watched_jobs
from retention.engines.spark.shuffle import PARTS, RESULTS, dealing, shuffled
from retention.engines.spark.task_code import map_in_arrow

SENT_BYTES = 16 << 20
"""The maximum bytes of pickled tasks per Spark job; each Spark task receives all of them."""


class SparkEngine:
    """An engine that runs tasks on the executors of a session that its caller owns.

    Only pickled tasks (file names, ranges) are sent and pickled results (statistics, ranges) returned; rows pass only
    between the executors and the storage.
    """

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], weights: Sequence[int]
    ) -> list[Result]:
        """Apply `function` to each task; results in order of tasks.

        Raises:
            RetentionError: a task raised it, or Spark failed.
            CancelledError: the jobs were cancelled.
        """
        if not tasks:
            return []
        with self._work(function):
            act = _worker(function, attempts_of(self._session))
            received = [frame.toArrow() for frame in self._mapped(act, RESULTS, tasks, weights)]
        return _in_order(pa.concat_tables(received))

    def shuffle(
        self,
        deal: Callable[[Task], Iterable[Part]],
        tasks: Sequence[Task],
        weights: Sequence[int],
        deal_again: Gathering[Iterable[Part]],
        gather: Gathering[Result],
    ) -> list[Result]:
        """Distribute parts by key, twice, through Spark's shuffle, or in this process; results in order of keys.

        Raises:
            RetentionError: a task raised it, or Spark failed.
            CancelledError: the jobs were cancelled.
        """
        if not tasks:
            return []
        if is_small_machine(self._session):
            here = LocalEngine(directory_of_shuffles(self._session))
            return here.shuffle(deal, tasks, weights, deal_again, gather)
        with self._work(deal):
            attempts = attempts_of(self._session)
            frames = self._mapped(dealing(deal, attempts), PARTS, tasks, weights)
            dealt = reduce(DataFrame.union, frames)
            received = shuffled(dealt, deal_again, gather, attempts).toArrow()
        return _in_order(received)

    def grouped(
        self,
        read: Read,
        fold: Fold,
        schema: pa.Schema,
        tasks: Sequence[Any],
        weights: Sequence[int],
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """Read rows in tasks, and fold the rows of each key in other tasks (`engine_port.GroupsRows`)."""
        if not tasks:
            return [], {}
        with self._work(fold):
            attempts = attempts_of(self._session)
            frames = self._mapped(
                reading(read, schema, attempts), columns_of(schema), tasks, weights
            )
            return folded(reduce(DataFrame.union, frames), fold, schema, attempts)

    @contextmanager
    def _work(self, function: Callable[..., Any]) -> Iterator[None]:
        """Label and watch the jobs of the block; failures of Spark become one-sentence errors."""
        step = current_label().step or _name(function)
        with labelled(step=step), spark_failures(), watched_jobs(self._session):
            yield

    def _mapped(
        self, act: Act, columns: str, tasks: Sequence[Any], weights: Sequence[int]
    ) -> Iterator[DataFrame]:
        """Frames with the rows of an act of tasks; each group of tasks is a partition, represented by one row.

        Args:
            act: the work of a Spark task on its group.
            columns: the columns of its rows, as Spark DDL.
            tasks: the tasks of all groups.
            weights: the bytes that each task reads.
        """
        for shares in self._shares(tasks, weights):
            slots = self._session.range(0, len(shares), 1, len(shares))
            yield map_in_arrow(slots, _acting(act, shares), columns)

    def _shares(self, tasks: Sequence[Any], weights: Sequence[int]) -> Iterator[list[bytes]]:
        """Split tasks into pickled groups of about equal weight, some groups at a time (`SENT_BYTES`)."""
        pending, size = list[bytes](), 0
        for group in groups(weights, self.parallelism()):
            share = pickle.dumps([(number, tasks[number]) for number in group])
            if pending and size + len(share) > SENT_BYTES:
                yield pending
                pending, size = [], 0
            pending.append(share)
            size += len(share)
        yield pending

    def parallelism(self) -> int:
        """The number of concurrent tasks; for a classic session the current number, because a cluster may grow."""
        if is_connect(self._session):
            return self._workers_behind
        return int(self._session.sparkContext.defaultParallelism)

    @cached_property
    def _workers_behind(self) -> int:
        return find_parallelism(self._session)


def is_small_machine(session: SparkSession) -> bool:
    """Whether this process runs as many tasks at a time as a session, on the same machine.

    Parts then need not pass through the JVM, which doubles their cost.
    """
    if is_connect(session) or local_master(session) is None:
        return False
    return int(session.sparkContext.defaultParallelism) <= THREADS


def directory_of_shuffles(session: SparkSession) -> str | None:
    """The first directory that is configured for a session's shuffles; None: there is none, or it is missing."""
    configured = session.sparkContext.getConf().get("spark.local.dir", "")
    first = os.environ.get("SPARK_LOCAL_DIRS", configured).partition(",")[0].strip()
    return first if first and Path(first).is_dir() else None


def _name(function: Callable[..., Any]) -> str:
    """The words of a function's name."""
    named = function.func if isinstance(function, partial) else function
    return str(getattr(named, "__name__", "run")).strip("_").replace("_", " ")


def _acting(
    act: Act, shares: Sequence[bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs over the rows that represent groups of tasks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for slot in batch.column("id").to_pylist():
                yield from act(pickle.loads(shares[slot]))  # noqa: S301  (our own pickles, from the driver)

    return run


def _worker(function: Callable[[Any], Any], attempts: int) -> Act:
    """The act that applies a function to each task; gives its result or the error that ended it."""

    def run(tasks: Iterable[tuple[int, Any]]) -> Iterator[pa.RecordBatch]:
        for number, task in tasks:
            outcome = pickle.dumps(outcome_of(partial(run_task, function, task), attempts))
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int64()), pa.array([outcome], pa.binary())],
                names=["number", "outcome"],
            )

    return run


def _in_order(received: pa.Table) -> list[Any]:
    outcomes = [pickle.loads(raw) for raw in received.sort_by("number")["outcome"].to_pylist()]  # noqa: S301
    for outcome in outcomes:
        if isinstance(outcome, CARRIED):
            raise outcome
    return outcomes
