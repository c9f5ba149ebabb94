"""Sessions by Spark Connect: how they are told from classic ones, and what stands for what they lack."""

from __future__ import annotations

import importlib.util
import socket
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from retention.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

REMOTE = "SPARK_REMOTE"
"""The environment variable that names a Spark Connect server, for every program that uses Spark."""
_PORT = 15002
_PATIENCE_S = 10.0
_CLIENT = ("grpc", "grpc_status", "google.rpc", "zstandard")
"""Modules that a client of Spark Connect loads, and that come with no other part of Spark."""
_MANY = 1 << 20
"""Rows of a range that has as many partitions as the cluster runs tasks at once."""


def is_connect(session: SparkSession) -> bool:
    """Whether a session is a client of a Spark Connect server; its module is not loaded to find that out."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_stopped(session: SparkSession) -> bool:
    """Whether a session was stopped: a classic one has lost its way to the JVM, and does not tell it otherwise."""
    if is_connect(session):
        return bool(cast("ConnectSession", session).is_stopped)
    return getattr(session.sparkContext, "_jsc", True) is None


def reach(remote: str) -> None:
    """Make sure that a Spark Connect server can be reached: Spark's client itself would try for ten minutes.

    Args:
        remote: its address, `sc://host:port/;…`; of anything else nothing is asked.

    Raises:
        UsageError: a package that the client needs is missing, or nobody listens there.
    """
    if any(_is_missing(module) for module in _CLIENT):
        raise UsageError(
            f"{REMOTE} names a Spark Connect server, and this Python lacks what its client needs: `pip install "
            "'lake-retention[connect]'`, or unset it"
        )
    server = urlsplit(remote)
    if server.scheme != "sc":
        return
    try:
        address = (server.hostname or "", server.port or _PORT)
        socket.create_connection(address, _PATIENCE_S).close()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no Spark Connect server answers at sc://{server.hostname}: {error}; start it, correct {REMOTE}, or unset "
            "it to work without"
        ) from error


def _is_missing(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:
        return True


def setting_of(session: SparkSession, name: str) -> str | None:
    """A setting of a session; None where it has none, or a server tells it to nobody."""
    from pyspark.errors import PySparkException

    try:
        return session.conf.get(name, None)
    except PySparkException:
        return None


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
