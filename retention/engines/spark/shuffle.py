"""Parts passed between Spark tasks by Spark's own shuffle, which spills, moves and deletes them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from retention.engine_port import Gathering, Part
from retention.engines.spark.attempts import CARRIED, Act, outcome_of
from retention.engines.spark.task_code import map_in_arrow

PARTS = "key long, sender long, content binary"
RESULTS = "number long, outcome binary"
_ERROR = -1
"""The key of an error in place of parts."""
Batches = Iterator[pa.RecordBatch]
_Row = tuple[int, int, bytes]


def shuffled(
    dealt: DataFrame,
    deal_again: Gathering[Iterable[Part]],
    gather: Gathering[Any],
    attempts: int,
) -> DataFrame:
    """The results of gathering the tasks' parts, or errors; columns `number` (the key) and `outcome`, pickled.

    Args:
        dealt: the parts of all tasks, from `dealing`.
        deal_again: gives new parts from the parts of one key.
        gather: gives the result from the new parts of one key.
        attempts: the number of times that Spark tries a task.
    """
    dealt_again = _dealing_again(deal_again.function, attempts)
    again = map_in_arrow(_by_key(dealt, deal_again.tasks), dealt_again, PARTS)
    return map_in_arrow(
        _by_key(again, gather.tasks), _gathering(gather.function, attempts), RESULTS
    )


def _by_key(parts: DataFrame, tasks: int) -> DataFrame:
    return parts.repartition(max(tasks, 1), "key").sortWithinPartitions("key", "sender")


def dealing(deal: Callable[[Any], Iterable[Part]], attempts: int) -> Act:
    """The act that gives the parts of each task, or the error that ended it; columns `PARTS`."""

    def run(tasks: Iterable[tuple[int, Any]]) -> Batches:
        for number, task in tasks:
            yield _parts(number, partial(deal, task), attempts)

    return run


def _dealing_again(
    function: Callable[[int, Sequence[bytes]], Iterable[Part]], attempts: int
) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for key, contents in _keys(batches):
            if key == _ERROR:
                yield _batch([(_ERROR, _ERROR, content) for content in contents])
            else:
                yield _parts(key, partial(function, key, contents), attempts)

    return run


def _gathering(
    function: Callable[[int, Sequence[bytes]], Any], attempts: int
) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for key, contents in _keys(batches):
            if key == _ERROR:
                yield _results([(key, content) for content in contents])
            else:
                outcome = outcome_of(partial(function, key, contents), attempts)
                yield _results([(key, pickle.dumps(outcome))])

    return run


def _parts(sender: int, act: Callable[[], Iterable[Part]], attempts: int) -> pa.RecordBatch:
    """The parts from a function, or the error that ended it."""
    outcome = outcome_of(lambda: list(act()), attempts)
    if isinstance(outcome, CARRIED):
        return _batch([(_ERROR, sender, pickle.dumps(outcome))])
    return _batch([(key, sender, content) for key, content in outcome])


def _keys(batches: Batches) -> Iterator[tuple[int, list[bytes]]]:
    """Each key with its contents, from rows sorted by key."""
    for key, rows in groupby(_rows(batches), key=itemgetter(0)):
        yield key, [content for _, _, content in rows]


def _rows(batches: Batches) -> Iterator[_Row]:
    for batch in batches:
        keys, senders = (batch.column(name).to_pylist() for name in ("key", "sender"))
        for at, (key, sender) in enumerate(zip(keys, senders, strict=True)):
            yield key, sender, batch.column("content")[at].as_py()


def _batch(rows: Sequence[_Row]) -> pa.RecordBatch:
    keys, senders, contents = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int64()),
            pa.array(senders, pa.int64()),
            pa.array(contents, pa.binary()),
        ],
        names=["key", "sender", "content"],
    )


def _results(rows: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    numbers, outcomes = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int64()), pa.array(outcomes, pa.binary())],
        names=["number", "outcome"],
    )
