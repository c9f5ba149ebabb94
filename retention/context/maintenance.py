"""The maintenance lease of an opened stream: who holds it is the one that changes what is stored."""

from __future__ import annotations

from contextlib import AbstractContextManager

from retention.context.context import OpenedStream
from retention.stores.lease import lease


def maintaining(opened: OpenedStream, *, at_least_s: float = 0.0) -> AbstractContextManager[None]:
    """Hold a stream's maintenance lease during a block, once another maintainer has ended.

    Args:
        opened: the stream; it says how long to wait.
        at_least_s: how long to wait at least, in seconds.

    Raises:
        BusyError: someone else still holds it.
        RefusedError: commits do not exclude each other at that place.
    """
    wait_s = max(opened.wait_s, at_least_s)
    return lease(opened.root, "maintenance", opened.clock, wait_s=wait_s)
