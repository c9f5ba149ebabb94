"""Commits in a thread of their own, one at a time, while their caller reads the next batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

Outcome = TypeVar("Outcome")


class Beside:
    """Work in another thread, at most one piece of it at a time; see `one_beside`."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._work: tuple[Future[Any], Callable[[], None]] | None = None

    def begin(self, work: Callable[[], Outcome], then: Callable[[Outcome], None]) -> None:
        """Begin work after `settle`, under the caller's label.

        Args:
            work: called in the other thread.
            then: gets its outcome, in the thread of `settle`.
        """
        self.settle()
        future = self._thread.submit(copy_context().run, work)
        self._work = future, lambda: then(future.result())

    def settle(self) -> None:
        """Wait for the work, and hand on its outcome; an error of the work is raised here, once.

        A signal may interrupt the wait; the outcome is handed on by the next call.
        """
        if self._work is None:
            return
        future, hand_on = self._work
        wait([future])
        self._work = None
        hand_on()


@contextmanager
def one_beside() -> Iterator[Beside]:
    """A thread for work beside the block's; the work ends, and its outcome is handed on, before the block does."""
    with ThreadPoolExecutor(1, thread_name_prefix="commit") as thread:
        beside = Beside(thread)
        try:
            yield beside
        finally:
            beside.settle()
