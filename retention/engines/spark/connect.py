"""Sessions by Spark Connect: how they are told from classic ones, and what stands for what they lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retention.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MANY = 1 << 20
"""Rows of a range that has as many partitions as the cluster runs tasks at once."""


def is_connect(session: SparkSession) -> bool:
    """Whether a session is a client of a Spark Connect server; its module is not loaded to find that out."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def refuse_connect(session: SparkSession, what: str, instead: str) -> None:
    """Refuse what a Connect session cannot do.

    Args:
        session: the session.
        what: the work, such as `ingest`.
        instead: what to do.

    Raises:
        UsageError: it is one.
    """
    if is_connect(session):
        raise UsageError(f"{what} does not work in a session by Spark Connect: {instead}")


def find_parallelism(session: SparkSession) -> int:
    """Find out by a small job how many tasks the cluster of a session runs at once."""
    placed = session.range(_MANY).selectExpr("spark_partition_id() AS place")
    [last] = placed.selectExpr("max(place) AS last").toArrow()["last"].to_pylist()
    return int(last) + 1


def streaming_query(session: SparkSession) -> str | None:
    """The id of the streaming query that hands a micro-batch over in this session, its checkpoint's; None if unknown.

    The server runs `foreachBatch` in a process of its own, which is told the session and not the query: with one
    active query it is that one.
    """
    if not is_connect(session):
        return session.sparkContext.getLocalProperty("sql.streaming.queryId")
    active = session.streams.active
    return str(active[0].id) if len(active) == 1 else None
