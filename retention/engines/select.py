"""Choosing an engine by the work at hand, and owning the Spark session that a run had to start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from retention.engine_port import Engine
from retention.engines.local import LocalEngine
from retention.engines.spark.connect import is_connect
from retention.engines.spark.session import active_session, application_id, session, suits_work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EngineName = Literal["auto", "spark", "local"]


class Engines:
    """A context in which engines are picked; a session that it had to start is stopped at its end, any other is not."""

    def __init__(self, setting: EngineName | None = None) -> None:
        """Remember the setting that beats every stream's own.

        Args:
            setting: `auto`, `spark` or `local`; None leaves it to each stream's configuration.
        """
        self._setting = setting
        self._session: SparkSession | None = None
        self._on_spark: Engine | None = None
        self._stack = ExitStack()
        self._lock = Lock()

    def pick(self, setting: EngineName, bytes_to_read: int, local_limit: int) -> Engine:
        """The engine for one piece of work.

        Under `auto`, more than `local_limit` bytes to read mean Spark, unless the session that is active is of one
        that work cannot run on.
        """
        wanted = self._setting or setting
        if wanted == "local" or not bytes_to_read:
            return LocalEngine()
        if wanted == "auto" and (bytes_to_read <= local_limit or not suits_work()):
            return LocalEngine()
        return self._spark_engine()

    def may_start_spark(self, setting: EngineName) -> bool:
        """Whether work that only Spark can do may be given to it."""
        return (self._setting or setting) != "local"

    def session(self) -> SparkSession:
        """The active Spark session, or one that is stopped when this context ends."""
        with self._lock:
            if self._session is None:
                self._session = self._stack.enter_context(session())
            return self._session

    def application(self) -> str | None:
        """The id of the Spark application that the work may run in; None: it runs in this process alone.

        A server of Spark Connect that has done nothing for the work is not asked: it may be gone.
        """
        running = self._session or active_session()
        if running is None or (self._session is None and is_connect(running)):
            return None
        return application_id(running)

    def at_end(self, act: Callable[[], None]) -> None:
        """Have `act` done when this context ends, before a session that it started stops."""
        self._stack.callback(act)

    def _spark_engine(self) -> Engine:
        from retention.engines.spark.engine import SparkEngine

        session = self.session()
        with self._lock:
            if self._on_spark is None:
                self._on_spark = SparkEngine(session)
            return self._on_spark

    def __enter__(self) -> Engines:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = self._on_spark = None
        self._stack.close()
