"""Rows read by tasks, grouped by key with Spark's own shuffle, and folded in order for each key."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from retention.engine_port import Fold, GroupedRows, Read
from retention.engines.spark.attempts import CARRIED, Act, outcome_of
from retention.engines.spark.ddl import ddl_of
from retention.engines.spark.task_code import map_in_arrow

_ASIDE = "aside"
_RESULT = "key string, place bigint, aside binary"


def columns_of(schema: pa.Schema) -> str:
    """The columns of the rows from `reading`, as Spark DDL."""
    return ddl_of(_with_aside(schema))


def folded(
    rows: DataFrame, fold: Fold, schema: pa.Schema, attempts: int
) -> tuple[list[Any], Mapping[str, Any]]:
    """Fold the rows of each key.

    Args:
        rows: the rows of tasks, from `reading`.
        fold: folds the rows of a key, given as tables in the order of `place`.
        schema: the schema of the rows: `key` (string), `place` (int64), and others.
        attempts: the number of times that Spark tries a task.

    Returns:
        The side results, in order of the tasks; and key → the result of its fold.

    Raises:
        RetentionError, OSError: the first error that a task returned.
    """
    together = rows.repartition("key").sortWithinPartitions("key", "place")
    received = map_in_arrow(together, _folder(fold, schema, attempts), _RESULT).toArrow()
    answers = received.sort_by([("key", "ascending"), ("place", "ascending")]).to_pylist()
    outcomes = [(answer["key"], pickle.loads(answer[_ASIDE])) for answer in answers]  # noqa: S301  (our own)
    # Errors of reading take precedence over errors of folding.
    for _, outcome in sorted(outcomes, key=lambda outcome: outcome[0] is not None):
        if isinstance(outcome, CARRIED):
            raise outcome
    asides = [outcome for key, outcome in outcomes if key is None]
    return asides, {key: outcome for key, outcome in outcomes if key is not None}


def reading(read: Read, schema: pa.Schema, attempts: int) -> Act:
    """The act that reads: gives rows, and for each task a row without key that has the side result."""
    with_aside = _with_aside(schema)

    def run(tasks: Iterable[tuple[int, Any]]) -> Iterator[pa.RecordBatch]:
        for number, task in tasks:
            done = outcome_of(partial(read, task), attempts)
            if isinstance(done, GroupedRows):
                nulls = pa.nulls(done.rows.num_rows, pa.binary())
                yield from done.rows.append_column(_ASIDE, nulls).to_batches()
                done = done.aside
            row = {"place": number, _ASIDE: pickle.dumps(done)}
            yield pa.RecordBatch.from_pylist([row], schema=with_aside)

    return run


def _folder(
    fold: Fold, schema: pa.Schema, attempts: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The Spark task that folds the rows of keys, one key at a time, and passes on side results."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key, inside in groupby(_by_key(batches), key=itemgetter(0)):
            tables = map(itemgetter(1), inside)
            if key is None:
                for table in tables:
                    yield from table.select(["key", "place", _ASIDE]).to_batches()
                continue
            folded = outcome_of(partial(fold, key, _without_aside(tables, schema)), attempts)
            answer = {"key": key, "place": 0, _ASIDE: pickle.dumps(folded)}
            kinds = pa.schema({"key": pa.string(), "place": pa.int64(), _ASIDE: pa.binary()})
            yield pa.RecordBatch.from_pylist([answer], schema=kinds)

    return run


def _by_key(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str | None, pa.Table]]:
    """Sorted batches cut at key boundaries."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        runs = pa.compute.run_end_encode(table["key"].combine_chunks())
        begin = 0
        for key, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            yield key, table.slice(begin, end - begin)
            begin = end


def _with_aside(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(_ASIDE, pa.binary()))


def _without_aside(tables: Iterator[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    return (table.select(schema.names) for table in tables)
