"""The choice of an engine for each piece of work, and ownership of a Spark session that a run starts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from retention.engine_port import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EngineName = Literal["auto", "spark", "local"]


class Engines:
    """A context that chooses engines; at its end, it stops only a session that it started."""

    def __init__(self, setting: EngineName | None = None) -> None:
        """Set the engine setting that overrides every stream's own.

        Args:
            setting: `auto`, `spark` or `local`; None leaves it to each stream's configuration.
        """
        self._setting = setting
        self._session: SparkSession | None = None
        self._on_spark: Engine | None = None
        self._stack = ExitStack()
        self._lock = Lock()

    @classmethod
    def of_active_session(cls) -> Self:
        """Engines that may use the active Spark session, and start none."""
        from retention.engines.spark.session import active_session

        return cls("local" if active_session() is None else None)

    def pick(self, setting: EngineName, bytes_to_read: int, local_limit: int) -> Engine:
        """The engine for one piece of work.

        Under `auto`, more than `local_limit` bytes to read select Spark, unless the active session cannot run the work.
        """
        from retention.engines.local import LocalEngine

        if self._uses_spark(self._setting or setting, bytes_to_read, local_limit):
            return self._spark_engine()
        return LocalEngine()

    def _uses_spark(self, wanted: EngineName, bytes_to_read: int, local_limit: int) -> bool:
        if wanted != "auto" or bytes_to_read <= local_limit:
            return wanted == "spark" and bytes_to_read > 0
        from retention.engines.spark.session import suits_work

        return suits_work()

    def may_start_spark(self, setting: EngineName) -> bool:
        """Whether Spark may be used for work that only Spark can do."""
        return (self._setting or setting) != "local"

    def session(self) -> SparkSession:
        """The active Spark session, or a new one that is stopped when this context ends."""
        from retention.engines.spark.session import session

        with self._lock:
            if self._session is None:
                self._session = self._stack.enter_context(session())
            return self._session

    def application(self) -> str | None:
        """The id of the Spark application that may run the work; None if it runs only in this process.

        An unused Spark Connect server is not asked, because it may have stopped.
        """
        from retention.engines.spark.connect import is_connect
        from retention.engines.spark.session import active_session, application_id

        running = self._session or active_session()
        if running is None or (self._session is None and is_connect(running)):
            return None
        return application_id(running)

    def at_end(self, act: Callable[[], None]) -> None:
        """Call `act` when this context ends, before a session that it started stops."""
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
