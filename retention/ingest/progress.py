"""Errors of work in several commits, which say what had come when they happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from retention.errors import RetentionError


@contextmanager
def naming_progress(progress: Callable[[], str]) -> Iterator[None]:
    """Add to an error of the block what had come before.

    Args:
        progress: tells it, when an error is there; empty if nothing had come.
    """
    try:
        yield
    except RetentionError as error:
        came = progress()
        if came:
            error.args = (f"{error} ({came})",)
        raise
