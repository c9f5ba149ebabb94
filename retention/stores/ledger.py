"""The ledger: a place apart from the warehouse that has copies of its legal holds, and completes it after a restore."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

from retention.core.subjects import path_name
from retention.delta.entry_put import put_if_absent
from retention.errors import RefusedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import storage_error
from retention.stores.hold_listing import DIRECTORY, PLACED
from retention.stores.holds import ENDED, RANGES, Hold, HoldRecords

_MARK = "ledger.json"


def ledger_home(ledger: str, kind: Literal["streams", "tables"], name: str) -> str:
    """The directory of a stream or table in a ledger."""
    return files.join(ledger, kind, path_name(name))


def check_ledger(ledger: str, warehouse: str) -> None:
    """Refuse a ledger that is not the one of the warehouse; the first use ties them.

    Raises:
        RefusedError: the place is empty, such as a disk that is not mounted, or has the ledger of another warehouse.
        StorageError: it cannot be reached.
    """
    there, here = files.join(ledger, _MARK), files.join(warehouse, "_retention", _MARK)
    of_ledger, of_warehouse = files.read_bytes(there), files.read_bytes(here)
    if of_ledger is None and of_warehouse is None:
        files.make_directory(ledger)
        name = uuid.uuid4().hex
        try:
            put_if_absent(there, f'{{"ledger": "{name}"}}\n'.encode(), name)
        except FileNotFoundError as error:
            # There is no such bucket.
            raise storage_error(there, error) from error
        reached(Step.LEDGER_BEGUN)
        of_ledger = files.read_bytes(there)
    if of_warehouse is None and of_ledger is not None:
        files.make_directory(files.join(warehouse, "_retention"))
        put_if_absent(here, of_ledger, of_ledger.decode(errors="replace"))
        reached(Step.LEDGER_NOTED)
    refuse_other_ledger(ledger, warehouse)


def refuse_other_ledger(ledger: str, warehouse: str) -> None:
    """Refuse a ledger that is not the one that the warehouse had before, if it had one; nothing is written.

    Raises:
        RefusedError, StorageError: as `check_ledger`.
    """
    here = files.join(warehouse, "_retention", _MARK)
    of_warehouse = files.read_bytes(here)
    if of_warehouse is not None and files.read_bytes(files.join(ledger, _MARK)) != of_warehouse:
        raise RefusedError(
            f"{ledger}: this is not the ledger that the warehouse {warehouse} had before, or it is not mounted; "
            f"nothing was removed; mount it or correct `ledger:`, or delete {here} to begin another ledger"
        )


@dataclass(frozen=True)
class HoldsLedger:
    """The legal holds of one stream or table in a ledger, beside those in the warehouse."""

    copies: HoldRecords
    """The records in the ledger."""
    records: HoldRecords
    """The records in the warehouse."""

    def missing(self) -> list[str]:
        """The names of the records that only the ledger has."""
        return _ordered(self.copies.names() - self.records.names())

    def missing_holds(self) -> list[Hold]:
        """The legal holds that only the ledger has, without those that ended.

        Raises:
            DamagedError: a record in the ledger cannot be read.
        """
        missing = set(self.missing())
        if not missing:
            return []
        return [hold for hold in self.copies.in_effect() if f"{hold.id}{PLACED}" in missing]

    def complete(self) -> list[str]:
        """Copy every record to where it is missing; the names of those that the warehouse lacked.

        Raises:
            DamagedError: a record to copy cannot be read.
        """
        there, here = self.copies.names(), self.records.names()
        _copy(self.records, self.copies, here - there)
        _copy(self.copies, self.records, there - here)
        return _ordered(there - here)


def _copy(source: HoldRecords, target: HoldRecords, missing: set[str]) -> None:
    if not missing:
        return
    source.all()
    begin, end = files.join(source.root, DIRECTORY), files.join(target.root, DIRECTORY)
    files.make_directory(end)
    for name in _ordered(missing):
        ranges = name.removesuffix(PLACED) + RANGES
        for each in (ranges, name):
            content = files.read_bytes(files.join(begin, each))
            if content is not None:
                files.replace(files.join(end, each), content)
                reached(Step.LEDGER_HOLD_COPIED)


def _ordered(names: set[str]) -> list[str]:
    """The names of records, those that place legal holds first."""
    return sorted(names, key=lambda name: (name.endswith(ENDED), name))
