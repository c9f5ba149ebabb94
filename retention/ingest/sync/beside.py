"""Commits in a thread of their own, one at a time, while their caller reads the next batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import Generic, TypeVar

Outcome = TypeVar("Outcome")


class Beside(Generic[Outcome]):
    """Work in another thread, at most one piece of it at a time; see `one_beside`."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._work: Future[Outcome] | None = None
        self._then: Callable[[Outcome], None] = _ignore

    def begin(self, work: Callable[[], Outcome], then: Callable[[Outcome], None]) -> None:
        """Begin work after `settle`, under the caller's label.

        Args:
            work: called in the other thread.
            then: gets its outcome, in the thread of `settle`.
        """
        self.settle()
        self._work, self._then = self._thread.submit(copy_context().run, work), then

    def settle(self) -> None:
        """Wait for the work, and hand on its outcome; an error of the work is raised here, once.

        A signal may interrupt the wait; the outcome is handed on by the next call.
        """
        work = self._work
        if work is None:
            return
        wait([work])
        self._work = None
        self._then(work.result())


@contextmanager
def one_beside() -> Iterator[Beside[Outcome]]:
    """A thread for work beside the block's; the work ends, and its outcome is handed on, before the block does."""
    with ThreadPoolExecutor(1, thread_name_prefix="commit") as thread:
        beside: Beside[Outcome] = Beside(thread)
        try:
            yield beside
        finally:
            beside.settle()


def _ignore(_outcome: object) -> None:
    """Before the first work."""
