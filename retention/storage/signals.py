"""Signals that end this process: at once, but never in the middle of a commit."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from retention.errors import Terminated

_ENDS: dict[int, type[BaseException]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
}


class Stop:
    """A request to end, for threads: Python raises the exceptions of signals in the main thread alone."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._kind: type[BaseException] = Terminated

    def ask(self, kind: type[BaseException]) -> None:
        """Ask the threads to end, for this exception's reason."""
        self._kind = kind
        self._asked.set()

    @property
    def is_asked(self) -> bool:
        """Whether the threads are asked to end."""
        return self._asked.is_set()

    def check(self) -> None:
        """Raise `Terminated` if the threads are asked to end."""
        if self.is_asked:
            raise Terminated

    def sleep(self, seconds: float) -> None:
        """Sleep; raise `Terminated` as soon as the threads are asked to end."""
        self._asked.wait(seconds)
        self.check()

    def reason(self) -> BaseException:
        """The exception of the signal."""
        return self._kind()


NO_STOP = Stop()
"""Of work in the main thread, where a signal raises its exception."""


class _Commits:
    """The commits in progress in this process, and the signal that waits for their end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0
        self._waiting: int | None = None
        self.first: Callable[[type[BaseException]], None] | None = None
        """Told of the next signal, instead of the end of this process."""

    def receive(self, number: int, _frame: FrameType | None = None) -> None:
        """Handle a signal; Python calls handlers in the main thread, while any thread may commit."""
        if self.first is not None:
            tell, self.first = self.first, None
            tell(_ENDS[number])
            return
        if self._under_way and self._waiting is None:
            self._waiting = number
            return
        self._waiting = None
        raise _ENDS[number]

    @contextmanager
    def one_more(self) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1
                is_last = not self._under_way
            if is_last and self._waiting is not None:
                # Only a signal to the main thread interrupts its waiting.
                signal.pthread_kill(threading.main_thread().ident or 0, self._waiting)


_commits = _Commits()


def end_between_commits() -> None:
    """Let SIGINT and SIGTERM end this process after a commit in progress, and a second signal at once.

    They raise `KeyboardInterrupt` and `Terminated`. Call this in the main thread.
    """
    for number in _ENDS:
        signal.signal(number, _commits.receive)


@contextmanager
def first_signal(tell: Callable[[type[BaseException]], None]) -> Iterator[None]:
    """A block whose first signal is told, with the exception that stands for it, and ends nothing; a second one does.

    Without `end_between_commits`, signals act as ever.
    """
    _commits.first = tell
    try:
        yield
    finally:
        _commits.first = None


def uninterrupted() -> AbstractContextManager[None]:
    """A block that no signal interrupts: a signal during the block ends the process after it.

    Blocks of several threads may overlap. Without `end_between_commits`, no signal is delayed.
    """
    return _commits.one_more()


@contextmanager
def handlers_kept() -> Iterator[None]:
    """A block after which the handlers of `end_between_commits` are in effect again.

    Starting a Spark session in the main thread sets a handler for SIGINT that ends everything at once. In other
    threads, Python permits no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = [number for number in _ENDS if signal.getsignal(number) == _commits.receive]
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, _commits.receive)
