"""This engine with rows read and written by Spark tasks, in a warm session."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

from benchmarks.contenders.ours import Local
from retention.engines.select import EngineName
from retention.engines.spark.session import session


class OnSpark(Local):
    """Tasks receive files and ranges, and return statistics."""

    engine: ClassVar[EngineName] = "spark"

    def __init__(self) -> None:
        self._stack = ExitStack()

    def open(self) -> None:
        self._stack.enter_context(session("benchmarks"))

    def close(self) -> None:
        self._stack.close()
