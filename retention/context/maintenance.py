"""The maintenance lease of an opened stream: only its holder changes stored data, and removes unless that is paused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retention.context.context import OpenedStream
from retention.context.hold_listing import may_have_holds
from retention.context.ownership import note_owner
from retention.stores.lease import lease
from retention.stores.pauses import refuse_paused


@contextmanager
def maintaining(opened: OpenedStream, *, at_least_s: float = 0.0) -> Iterator[None]:
    """Hold a stream's maintenance lease during a block, which begins once any other maintainer has ended.

    If the block succeeds, the stream's owner is recorded.

    Args:
        opened: the stream, with the time to wait.
        at_least_s: how long to wait at least, in seconds.

    Raises:
        BusyError: another process still holds it.
        RefusedError: the storage does not make commits exclude each other.
    """
    wait_s = max(opened.wait_s, at_least_s)
    with lease(opened.root, "maintenance", opened.clock, wait_s=wait_s):
        yield
        note_owner(opened)


@contextmanager
def removing(opened: OpenedStream, *, at_least_s: float = 0.0) -> Iterator[None]:
    """Hold the maintenance lease, as `maintaining`, for a block that removes messages or deletes removed files.

    Legal holds of the ledger and of the configuration are placed here, and those whose time is over end, on record.

    Raises:
        RefusedError: as `maintaining` and `restore_holds`; or a person has paused removals.
        BusyError, DamagedError, StorageError: as `maintaining`, `stores.pauses.refuse_paused` and `expire_holds`.
    """
    with maintaining(opened, at_least_s=at_least_s):
        refuse_paused(opened.warehouse, opened.root, opened.name)
        if may_have_holds(opened):
            from retention.context.holds import expire_holds, place_written, restore_holds

            restore_holds(opened)
            place_written(opened)
            expire_holds(opened)
        yield
