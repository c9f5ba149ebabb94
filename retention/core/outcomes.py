"""Outcomes of an action on several streams: a failure of one stream does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from retention.core.progress import tell_listeners, with_progress
from retention.core.units import SECOND
from retention.errors import (
    BusyError,
    CancelledError,
    RetentionError,
    StorageError,
    StreamsFailedError,
    Terminated,
)
from retention.errors.printable import visible
from retention.storage.errors import first_line, storage_error

Value = TypeVar("Value")

UNEXPECTED = 1
LOGGER = "retention.streams"
"""The logger of the start and end of work on each stream; a record's `about` has the event."""
_log = logging.getLogger(LOGGER)


@dataclass(frozen=True)
class Outcome(Generic[Value]):
    """The outcome of one stream: a value or an error."""

    stream: str
    value: Value | None = None
    error: Exception | None = None
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code of a command on this stream alone."""
        return 0 if self.error is None else exit_code_of(self.error)

    @property
    def sentence(self) -> str:
        """The error as a sentence with the stream's name; empty without an error."""
        if self.error is None:
            return ""
        text, stream = sentence_of(self.error), visible(self.stream)
        return text if text.startswith(stream) else f"{stream}: {text}"


Watch = Callable[[Outcome[Any]], None]
"""A callback that receives every outcome as soon as it is available."""


def act_sequentially(
    names: Iterable[str],
    act: Callable[[str], Value],
    clock: Callable[[], int],
    watch: Watch | None = None,
) -> list[Outcome[Value]]:
    """Act on each stream once, in order; an exception becomes the outcome of its stream."""
    logged, distinct = begin_logged(act), list(dict.fromkeys(names))
    return watched((outcome_of(name, logged, clock) for name in distinct), len(distinct), watch)


def act_concurrently(
    names: Iterable[str],
    act: Callable[[str], Value],
    clock: Callable[[], int],
    at_a_time: int,
    watch: Watch | None = None,
) -> list[Outcome[Value]]:
    """Act on each stream once, several at a time, because planning mostly waits for the storage.

    Outcomes are returned and passed to `watch` in the order of the names; otherwise like
    `act_sequentially`.
    """
    names = list(dict.fromkeys(names))
    with _at_once(names, begin_logged(act), clock, at_a_time) as outcomes:
        return watched(outcomes, len(names), watch)


def ask_concurrently(
    names: Iterable[str],
    ask: Callable[[str], Value],
    clock: Callable[[], int],
    at_a_time: int,
    doing: str,
) -> list[Outcome[Value]]:
    """Query each stream, several at a time; only the progress is logged, because a query is not a run."""
    names = list(dict.fromkeys(names))
    with _at_once(names, ask, clock, at_a_time) as outcomes:
        return list(with_progress(outcomes, len(names), doing))


@contextmanager
def _at_once(
    names: Iterable[str], act: Callable[[str], Value], clock: Callable[[], int], at_a_time: int
) -> Iterator[Iterator[Outcome[Value]]]:
    if at_a_time == 1:
        yield (outcome_of(name, act, clock) for name in names)
        return
    with ThreadPoolExecutor(at_a_time) as pool:
        try:
            yield pool.map(lambda name: outcome_of(name, act, clock), names)
        finally:
            # An interrupted command starts no further streams.
            pool.shutdown(cancel_futures=True)


def outcome_of(name: str, act: Callable[[str], Value], clock: Callable[[], int]) -> Outcome[Value]:
    """Act on a stream; an exception becomes its outcome."""
    started = clock()
    value, error = None, None
    try:
        value = act(name)
    except Exception as raised:  # an unexpected error of one stream must not stop the others
        error = raised
    return Outcome(name, value, error, (clock() - started) / SECOND)


def watched(
    outcomes: Iterable[Outcome[Value]], total: int, watch: Watch | None
) -> list[Outcome[Value]]:
    """Collect outcomes; each is logged, and passed to `watch`, as it comes."""
    done: list[Outcome[Value]] = []
    for outcome in outcomes:
        done.append(outcome)
        tell_listeners("streams done", len(done), total)
        _log_end(outcome)
        if watch is not None:
            watch(outcome)
    return done


def begin_logged(act: Callable[[str], Value]) -> Callable[[str], Value]:
    """The work on a stream, with its start logged."""

    def acting(name: str) -> Value:
        about = {"event": "stream_begun", "stream": name}
        _log.info("%s: begun", visible(name), extra={"about": about})
        return act(name)

    return acting


def _log_end(outcome: Outcome[Any]) -> None:
    """Log the end of work on a stream, with the plain values of its result."""
    if not _log.isEnabledFor(logging.INFO):
        return
    about = {"stream": outcome.stream, "seconds": round(outcome.seconds, 6)}
    if outcome.error is not None:
        about |= {"event": "stream_failed", "exit_code": outcome.exit_code}
        _log.error("%s", outcome.sentence, extra={"about": about})
        return
    value: object = outcome.value
    entry = value.as_json() if hasattr(value, "as_json") else {}
    plain = {name: each for name, each in entry.items() if isinstance(each, str | int | float)}
    is_left = getattr(value, "is_left", False)
    event, end = ("stream_left", "left for the next run") if is_left else ("stream_done", "done")
    text = f"{visible(outcome.stream)}: {end} ({outcome.seconds:.2f} s)"
    _log.info("%s", text, extra={"about": {"event": event} | plain | about})


def exit_code(outcomes: Sequence[Outcome[Any]]) -> int:
    """The exit code of a command: of its failure for a single stream, `code_of_several` for several."""
    failed = [outcome.exit_code for outcome in outcomes if outcome.error is not None]
    if not failed:
        return 0
    is_single = len({outcome.stream for outcome in outcomes}) == 1
    return failed[0] if is_single else code_of_several(failed)


def code_of_several(codes: Sequence[int]) -> int:
    """The exit code of several streams, from those of the failed ones: 75 if a retry may help all of them, else 5."""
    is_busy = set(codes) == {BusyError.exit_code}
    return BusyError.exit_code if is_busy else StreamsFailedError.exit_code


ENDINGS = (Exception, KeyboardInterrupt, Terminated)
"""Exceptions that end a command before its work is done."""


def exit_code_of(error: BaseException) -> int:
    """The exit code of a command that ends with this error, one of `ENDINGS`."""
    if isinstance(error, KeyboardInterrupt):
        return CancelledError.exit_code
    if isinstance(error, Terminated):
        return int(error.code or 0)
    if isinstance(error, OSError) and error.errno is not None:
        return _of_system(error).exit_code
    return error.exit_code if isinstance(error, RetentionError) else UNEXPECTED


def sentence_of(error: BaseException) -> str:
    """An error in one sentence: an OS error with its path, an unexpected error with its type."""
    if isinstance(error, KeyboardInterrupt | Terminated):
        how = "terminated" if isinstance(error, Terminated) else "interrupted"
        return f"{how}; committed work is kept, nothing else was changed; the next run continues from there"
    if isinstance(error, RetentionError):
        return str(error)
    if isinstance(error, OSError) and error.errno is not None:
        return str(_of_system(error))
    return (
        f"unexpected {type(error).__name__}: {first_line(error)}; --debug shows where it came from"
    )


def _of_system(error: OSError) -> StorageError:
    """An error of the operating system, with its path; one that has its path already is unchanged."""
    if isinstance(error, StorageError):
        return error
    return storage_error(error.filename or "a file", error)


def failure_entry(outcome: Outcome[Any]) -> dict[str, object]:
    """The JSON entry of a stream that failed."""
    if outcome.error is None:
        return {"stream": outcome.stream}
    error = {"exit_code": outcome.exit_code, "message": outcome.sentence}
    return {"stream": outcome.stream, "error": error}
