"""How far long work is: a line every few seconds, for whoever listens to the logger `retention.progress`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

LOGGER = "retention.progress"
EVERY_S = 5.0

_log = logging.getLogger(LOGGER)


def paced(items: Iterable[Item], total: int, doing: str) -> Iterator[Item]:
    """Pass items on, and say now and then how many there were.

    Args:
        items: what long work gives, one by one.
        total: how many there will be.
        doing: what is done with them, such as `reading statistics of files`.
    """
    said = time.monotonic()
    for number, item in enumerate(items, start=1):
        yield item
        if time.monotonic() - said >= EVERY_S:
            _log.info("%s: %s of %s", doing, f"{number:,}", f"{total:,}")
            said = time.monotonic()
