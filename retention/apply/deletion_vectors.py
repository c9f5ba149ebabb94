"""Purging deletion vectors: Spark rewrites the files in which another writer's vectors hide rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from retention.context.context import OpenedStream
from retention.core.labels import labelled
from retention.engines.select import Engines
from retention.errors import HiddenRowsError, RefusedError
from retention.storage import files

Planned = TypeVar("Planned")


def resolving_vectors(
    opened: OpenedStream, plan: Callable[[], Planned], engines: Engines
) -> Planned:
    """Plan; where deletion vectors prevent it, purge them and plan again.

    Files that have vectors are rewritten with `REORG TABLE … APPLY (PURGE)`; no live row changes.

    Raises:
        HiddenRowsError: the stream's engine is `local`, which cannot resolve vectors.
        RefusedError: the table is on an object store and not declared `exclusive`: Spark's commits there are only safe
            while no other process writes.
        UsageError: the session cannot reach the object store.
    """
    try:
        return plan()
    except HiddenRowsError as hidden:
        _purge(opened, hidden, engines)
        return plan()


@labelled(step="purge deletion vectors")
def _purge(opened: OpenedStream, hidden: HiddenRowsError, engines: Engines) -> None:
    from retention.engines.spark.jobs import watched_jobs
    from retention.engines.spark.s3a import for_spark, reaching

    if not engines.may_start_spark(opened.config.engine):
        raise hidden
    if files.is_remote(opened.root) and not opened.config.exclusive:
        raise RefusedError(
            f"{opened.name}: its files carry deletion vectors, and Spark may purge them on an object store only while "
            "no other process writes; set exclusive: true for this stream if that is so, then run again"
        )
    table = for_spark(files.join(opened.root, "messages"))
    segments = defaultdict(set)
    for partition, segment in hidden.segments:
        segments[partition].add(segment)
    session = engines.session()
    from retention.engines.spark.failures import spark_failures

    for partition, bases in sorted(segments.items()):
        listed = ", ".join(str(base) for base in sorted(bases))
        with spark_failures(), watched_jobs(session), reaching(table):
            session.sql(
                f"REORG TABLE delta.`{table}` WHERE `partition` = {partition} AND segment IN ({listed}) APPLY (PURGE)"
            ).collect()
