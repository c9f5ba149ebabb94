"""Progress of long work: a line every few seconds on the logger `retention.progress`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from retention.core.units import SECOND, format_duration

Item = TypeVar("Item")

LOGGER = "retention.progress"
EVERY_S = 5.0

_log = logging.getLogger(LOGGER)


class Pace:
    """The pace of long work, from which follows how much time is left."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin to measure.

        Args:
            clock: reads seconds that never go back.
        """
        self._clock = clock
        self._first: dict[str, tuple[float, int]] = {}
        self._last: dict[str, int] = {}

    def left(self, doing: str, done: int, total: int) -> str:
        """The clause for the time left, such as `, about 2m5s left`; empty where the pace is not known yet."""
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
    """Pass items on, and log every `EVERY_S` seconds how many there were.

    Args:
        items: the results of long work, one by one.
        total: how many there will be.
        doing: the activity, such as `reading statistics of files`.
    """
    logged_at = time.monotonic()
    for number, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - logged_at >= EVERY_S:
            log_progress(doing, number, total)
            logged_at = time.monotonic()


def log_progress(doing: str, done: int, total: int, unit: str = "") -> None:
    """Log how far long work is; whoever calls this keeps to `EVERY_S`."""
    about = {"event": "progress", "doing": doing, "done": done, "total": total}
    text = f"{doing}: {done:,} of {total:,}{unit and f' {unit}'}"
    _log.info("%s", text, extra={"about": about})
