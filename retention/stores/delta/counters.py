"""The counters of a Delta table: application transactions of its log, by names that tell epochs apart."""

from __future__ import annotations

from collections.abc import Mapping

from retention.core.counter_names import NEXT_SEQ, counters_of, is_in_epoch, name_of
from retention.core.counters import EPOCH, Counters
from retention.errors import BusyError, DamagedError
from retention.schemas.bounds import MAX_SEQ
from retention.stores.delta import internals
from retention.stores.delta import log as delta_history
from retention.stores.layout import Layout


def app_id(name: str, epoch: int) -> str:
    """The name of a counter's transaction. Its version is permanent under that name, so each epoch has its own name."""
    return f"{_of_epoch(epoch)}{name}" if is_in_epoch(name) else name


def _of_epoch(epoch: int) -> str:
    """The name prefix of an epoch's counters."""
    return f"{EPOCH}/{epoch}/" if epoch else ""


def counters(transactions: Mapping[str, int]) -> Counters:
    """The counters in transactions with names from `app_id`."""
    return counters_of(by_name(transactions, transactions.get(EPOCH, 0)))


def by_name(transactions: Mapping[str, int], epoch: int) -> dict[str, int]:
    """Name → value of the counters in transactions: those of an epoch, and those that a table has once."""
    here = _of_epoch(epoch)
    in_epoch = {
        name.removeprefix(here): version
        for name, version in transactions.items()
        if name.startswith(here) and is_in_epoch(name.removeprefix(here))
    }
    others = {name: version for name, version in transactions.items() if not is_in_epoch(name)}
    return others | in_epoch


def last_counted(layout: Layout, version: int, epoch: int) -> dict[int, int]:
    """Partition → the highest next sequence within bounds that entries set in an epoch.

    Args:
        layout: the stream's layout.
        version: an opened version; later entries are ignored.
        epoch: the epoch of this version.

    Raises:
        DamagedError: an entry cannot be read.
    """
    highest: dict[int, int] = {}
    counted = app_id(name_of(NEXT_SEQ, ""), epoch)
    there = [number for number in delta_history.versions(layout)[0] if number <= version]
    for number, entry in zip(there, delta_history.read_entries(layout, there), strict=True):
        for name, value in _of_entry(layout, number, entry).items():
            partition = name.removeprefix(counted)
            if name.startswith(counted) and partition.isdigit() and value <= MAX_SEQ + 1:
                highest[int(partition)] = max(value, highest.get(int(partition), 0))
    return highest


def _of_entry(layout: Layout, version: int, entry: bytes | None) -> dict[str, int]:
    place = delta_history.place_of(layout, version)
    if entry is None:
        raise BusyError(
            f"{place}: this entry of the log is gone since the table of stream {layout.stream} was opened, as when a "
            "table is made anew; nothing was changed; try again"
        )
    try:
        return internals.transactions(entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{place}: this entry of the log of stream {layout.stream} cannot be read ({error!r}); nothing was "
            "changed; restore it from a copy"
        ) from error
