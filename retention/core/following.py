"""Acting on several streams at once until a signal: a thread for each, and each outcome as soon as it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue

from retention.core.outcomes import Outcome, Value, Watch, begin_logged, outcome_of, watched
from retention.errors import Terminated
from retention.storage.signals import Stop, first_signal

ENDS_WITHIN_S = 30.0
"""The wait for the threads after a signal, seconds; one that waits for a lock or a server is left then."""
_LOOK_EVERY_S = 0.1
"""Python handles signals in the main thread alone, which must not sleep for ever."""


def act_until_signal(
    names: Iterable[str],
    act: Callable[[str, Stop], Value],
    clock: Callable[[], int],
    watch: Watch | None = None,
) -> list[Outcome[Value]]:
    """Act on each stream once, all at a time, in threads; an exception becomes the outcome of its stream.

    The first signal asks all threads to end, and is no error if they do; a second one ends this process at once.
    Outcomes are passed to `watch` as they come, and returned in the order of the names.

    Args:
        names: the streams.
        act: acts on a stream until it has ended, or raises `Terminated` when `Stop.check` does.
        clock: the wall clock, nanoseconds since the epoch.
        watch: called in this thread.

    Raises:
        KeyboardInterrupt, Terminated: after a signal, if a stream had not begun or does not end.
    """
    distinct = list(dict.fromkeys(names))
    stop = Stop()
    ends: SimpleQueue[Outcome[Value] | None] = SimpleQueue()
    logged = begin_logged(lambda name: act(name, stop))

    def run(name: str) -> None:
        outcome = None
        with suppress(Terminated):
            outcome = outcome_of(name, logged, clock)
        ends.put(outcome)

    with first_signal(stop.ask):
        for name in distinct:
            threading.Thread(target=run, args=(name,), name=name, daemon=True).start()
        done = watched(_as_they_come(ends, len(distinct), stop), len(distinct), watch)
    if len(done) < len(distinct):
        raise stop.reason()
    return sorted(done, key=lambda outcome: distinct.index(outcome.stream))


def _as_they_come(
    ends: SimpleQueue[Outcome[Value] | None], count: int, stop: Stop
) -> Iterator[Outcome[Value]]:
    """The outcomes of threads, until all have ended, or none does for `ENDS_WITHIN_S` after a signal."""
    looks = 0
    while count and looks * _LOOK_EVERY_S < ENDS_WITHIN_S:
        try:
            outcome = ends.get(timeout=_LOOK_EVERY_S)
        except Empty:
            looks += stop.is_asked
            continue
        except KeyboardInterrupt:
            if stop.is_asked:
                raise
            stop.ask(KeyboardInterrupt)
            continue
        count, looks = count - 1, 0
        if outcome is not None:
            yield outcome
