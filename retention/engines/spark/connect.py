"""Spark Connect sessions: distinguishes them from classic ones, and replaces the functions that they lack."""

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
"""Modules that only a client of Spark Connect loads."""
_MANY = 1 << 20
"""The rows of a range large enough to get one partition per concurrent task of the cluster."""


def is_connect(session: SparkSession) -> bool:
    """Whether a session is a client of a Spark Connect server; loads no module of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def is_stopped(session: SparkSession) -> bool:
    """Whether a session was stopped; only the lost reference to the JVM shows this for a classic session."""
    if is_connect(session):
        return bool(cast("ConnectSession", session).is_stopped)
    return getattr(session.sparkContext, "_jsc", True) is None


def reach(remote: str) -> None:
    """Verify that a Spark Connect server can be reached; Spark's own client would retry for ten minutes.

    Args:
        remote: its address, `sc://host:port/;…`; other schemes are not checked.

    Raises:
        UsageError: a package of the client is missing, or no server answers at the address.
    """
    if any(is_missing(module) for module in _CLIENT):
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


def is_missing(module: str) -> bool:
    """Whether a module is not installed."""
    try:
        return importlib.util.find_spec(module) is None
    except ModuleNotFoundError:
        return True


def setting_of(session: SparkSession, name: str) -> str | None:
    """A setting of a session; None if it is unset, or if the server does not disclose it."""
    from pyspark.errors import PySparkException

    try:
        return session.conf.get(name, None)
    except PySparkException:
        return None


def find_parallelism(session: SparkSession) -> int:
    """The number of concurrent tasks of a session's cluster, determined by a small job."""
    placed = session.range(_MANY).selectExpr("spark_partition_id() AS place")
    [last] = placed.selectExpr("max(place) AS last").toArrow()["last"].to_pylist()
    return int(last) + 1


def streaming_query(session: SparkSession) -> str | None:
    """The id of the streaming query that runs a micro-batch in this session, from its checkpoint; None if unknown.

    A Connect server runs `foreachBatch` in a separate process that knows the session but not the query; if exactly one
    query is active, it is that one.
    """
    if not is_connect(session):
        return session.sparkContext.getLocalProperty("sql.streaming.queryId")
    active = session.streams.active
    return str(active[0].id) if len(active) == 1 else None
