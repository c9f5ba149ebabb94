"""The maintenance lease of an opened stream: who holds it is the one that changes what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retention.context.context import OpenedStream
from retention.context.ownership import note_owner
from retention.stores.lease import lease


@contextmanager
def maintaining(opened: OpenedStream, *, at_least_s: float = 0.0) -> Iterator[None]:
    """Hold a stream's maintenance lease during a block that begins once another maintainer has ended.

    Where the block succeeds, it is recorded whose the stream is.

    Args:
        opened: the stream; it says how long to wait.
        at_least_s: how long to wait at least, in seconds.

    Raises:
        BusyError: someone else still holds it.
        RefusedError: commits do not exclude each other at that place.
    """
    wait_s = max(opened.wait_s, at_least_s)
    with lease(opened.root, "maintenance", opened.clock, wait_s=wait_s):
        yield
        note_owner(opened)
