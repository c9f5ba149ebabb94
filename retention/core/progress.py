"""Progress of long work: for listeners, and every few seconds a line on the logger `retention.progress`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from retention.core.units import SECOND, format_duration

Item = TypeVar("Item")

LOGGER = "retention.progress"
EVERY_S = 5.0

_log = logging.getLogger(LOGGER)

Listener = Callable[[str, int, int], None]
"""A callback for progress: the activity, the number done, and the total."""
LISTENERS: list[Listener] = []
"""The callbacks of this process, of which a notebook's bars are one; usually none."""


class Pace:
    """The pace of long work, to estimate the time left."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin to measure.

        Args:
            clock: monotonic, in seconds.
        """
        self._clock = clock
        self._first: dict[str, tuple[float, int]] = {}
        self._last: dict[str, int] = {}

    def left(self, doing: str, done: int, total: int) -> str:
        """The clause for the time left, such as `, about 2m5s left`; empty until the pace is known."""
        now = self._clock()
        if done < self._last.get(doing, done) or doing not in self._first:
            self._first[doing] = (now, done)
        self._last[doing] = done
        began, before = self._first[doing]
        if done == before or done >= total:
            return ""
        seconds = round((now - began) * (total - done) / (done - before))
        return f", about {format_duration(max(seconds, 1) * SECOND)} left"


def with_progress(items: Iterable[Item], total: int, doing: str) -> Iterator[Item]:
    """Yield items unchanged, and log their number every `EVERY_S` seconds.

    Args:
        items: the results of long work, one by one.
        total: the number of items.
        doing: the activity, such as `reading statistics of files`.
    """
    logged_at = time.monotonic()
    for number, item in enumerate(items, start=1):
        yield item
        tell_listeners(doing, number, total)
        if time.monotonic() - logged_at >= EVERY_S:
            log_progress(doing, number, total)
            logged_at = time.monotonic()


def log_progress(doing: str, done: int, total: int, unit: str = "") -> None:
    """Log the progress of long work; the caller limits this to once per `EVERY_S`."""
    about = {"event": "progress", "doing": doing, "done": done, "total": total}
    text = f"{doing}: {done:,} of {total:,}{unit and f' {unit}'}"
    _log.info("%s", text, extra={"about": about})
    tell_listeners(doing, done, total)


def tell_listeners(doing: str, done: int, total: int) -> None:
    """Tell the listeners of this process how far work has come; one that fails must not fail the work."""
    for listener in LISTENERS:
        with suppress(Exception):
            listener(doing, done, total)
