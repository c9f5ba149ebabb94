"""Errors of work in several commits, with the progress made before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from retention.errors import RetentionError


@contextmanager
def naming_progress(progress: Callable[[], str]) -> Iterator[None]:
    """Add the progress so far to an error of the block.

    Args:
        progress: called on an error; returns the progress, empty if there was none.
    """
    try:
        yield
    except RetentionError as error:
        came = progress()
        if came:
            error.args = (f"{error} ({came})",)
        raise
