"""Progress of long work: a line every few seconds on the logger `retention.progress`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

LOGGER = "retention.progress"
EVERY_S = 5.0

_log = logging.getLogger(LOGGER)


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
