"""Legal holds of an opened stream: those in effect at a version of its table, placed, released, and expired."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from retention.config.holds import StreamHold
from retention.context.context import OpenedStream, has_table
from retention.context.hold_listing import has_hold_records
from retention.core.counters import Counters
from retention.core.spoken_commands import command
from retention.errors import BusyError, DamagedError, RefusedError, StalePlanError, StorageError
from retention.history.initiator import initiator
from retention.ports import Swap
from retention.rules.holds import NO_HOLDS, LegalHolds
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage.crash_points import Step, reached
from retention.stores.holds import (
    CONFIGURATION,
    Hold,
    HoldEnd,
    HoldRecords,
    configured,
    listed_holds,
)
from retention.stores.layout import note_holding
from retention.stores.ledger import HoldsLedger, check_ledger, ledger_home

ATTEMPTS = 20
_log = logging.getLogger(__name__)


def holds_ledger(opened: OpenedStream) -> HoldsLedger | None:
    """The legal holds of a stream in the ledger; None: there is no ledger."""
    if opened.ledger is None:
        return None
    home = ledger_home(opened.ledger, "streams", opened.name)
    return HoldsLedger(HoldRecords(home, opened.name), HoldRecords(opened.root, opened.name))


def restore_holds(opened: OpenedStream) -> None:
    """Place the legal holds that only the ledger has, as after a restore from a backup, and copy there those it lacks.

    Raises:
        RefusedError: the place is not the warehouse's ledger.
        DamagedError, StorageError: a record cannot be read, or the ledger cannot be reached.
        BusyError: as `place_hold`.
    """
    ledger = holds_ledger(opened)
    if ledger is None or opened.ledger is None or not has_table(opened):
        return
    check_ledger(opened.ledger, opened.warehouse)
    if ledger.missing():
        note_holding(opened.layout, opened.config.format)
    restored = ledger.complete()
    if not restored:
        return
    _log.warning(
        "%s: placed what only the ledger has of legal holds, as after a restore from a backup: %s",
        opened.name,
        ", ".join(restored),
    )
    if opened.table.exists():
        count_holds(opened)


def only_in_ledger(opened: OpenedStream) -> list[Hold]:
    """The legal holds that only the ledger has; if it cannot be reached, that is logged, and runs that remove fail."""
    ledger = holds_ledger(opened)
    try:
        return [] if ledger is None else ledger.missing_holds()
    except StorageError as error:
        _log.warning(
            "%s: legal holds and erasures that only the ledger has are unknown, and nothing is removed until it can be "
            "read: %s",
            opened.name,
            error,
        )
        return []


def _records_to_write(opened: OpenedStream) -> list[HoldRecords]:
    """The records of the ledger, if there is one, then those of the warehouse."""
    restore_holds(opened)
    ledger, records = holds_ledger(opened), HoldRecords(opened.root, opened.name)
    return [records] if ledger is None else [ledger.copies, records]


def holds_of(opened: OpenedStream) -> tuple[Hold, ...]:
    """The legal holds in effect, and those that the configuration has and the next run that removes records.

    Raises:
        DamagedError: a record cannot be read.
    """
    return _listed(opened, HoldRecords(opened.root, opened.name).in_effect())


def _listed(opened: OpenedStream, recorded: Sequence[Hold]) -> tuple[Hold, ...]:
    written = [
        Hold(
            opened.name,
            each.id,
            each.reason,
            each.subject if isinstance(each, StreamHold) else None,
            None if each.ranges is None else np.array([each.ranges]),
            each.since,
            each.before,
            each.until,
            each.owner,
            opened.clock(),
        )
        for each in opened.config.written_holds
    ]
    is_asked = written or any(CONFIGURATION in (hold.initiator or {}) for hold in recorded)
    names = HoldRecords(opened.root, opened.name).names() if is_asked else set[str]()
    pending = (replace(hold, line="pending") for hold in only_in_ledger(opened))
    return (*listed_holds(recorded, names, written, opened.clock()), *pending)


def place_written(opened: OpenedStream) -> None:
    """Place the legal holds of the configuration that no record has yet, under the maintenance lease.

    Raises:
        DamagedError: as `holds_in_effect`.
        BusyError: as `place_hold`.
    """
    if not opened.config.written_holds or not opened.table.exists():
        return
    file = "" if opened.owner is None else str(opened.owner)
    for hold in holds_of(opened):
        if hold.line == "pending":
            place_hold(opened, configured(hold, initiator(), file))


def holds_in_effect(opened: OpenedStream, counters: Counters) -> LegalHolds:
    """The legal holds that removals must respect: also those of the configuration that no record has yet.

    One that is due is in effect until a run that removes records its end.

    Args:
        opened: the stream.
        counters: those of a version of its table that was read before this call.

    Raises:
        DamagedError: a record cannot be read, or the log counts more records than there are.
    """
    records = HoldRecords(opened.root, opened.name)
    holds = records.all()
    there = len(holds) + sum(hold.end is not None for hold in holds)
    if there < counters.holds:
        raise DamagedError(
            f"{opened.root}/holds: the log of stream {opened.name} counts {counters.holds} records of legal holds, and "
            f"{there} are there, so it is unknown which messages must be kept; nothing was removed; restore that "
            "directory from a copy"
        )
    listed = _listed(opened, [hold for hold in holds if hold.end is None])
    in_effect = tuple(hold.messages for hold in listed)
    return LegalHolds(in_effect, counters.holds) if there or in_effect else NO_HOLDS


def place_hold(opened: OpenedStream, hold: Hold) -> None:
    """Place a legal hold: after the return no commit removes a message that it covers, whenever it was planned.

    Raises:
        RefusedError: the stream is dropped; or as `restore_holds`.
        BusyError: other writers kept coming first; the legal hold is recorded, and runs that begin now respect it.
    """
    if opened.table.lifetime().dropped_ns is not None:
        raise RefusedError(
            f"{opened.name}: the stream is dropped, and a legal hold would begin another table; nothing was changed; "
            f"{command('undo', 'RUN')} restores it within its grace period"
        )
    opened.store.create()
    note_holding(opened.layout, opened.config.format)
    for records in _records_to_write(opened):
        records.place(hold)
    count_holds(opened)


def end_hold(
    opened: OpenedStream, hold: Hold, kind: Literal["released", "expired"], reason: str
) -> HoldEnd:
    """Record the end of a legal hold, and count it."""
    end = HoldEnd(kind, opened.clock(), reason, initiator())
    for records in _records_to_write(opened):
        records.end(hold, end)
    count_holds(opened)
    return end


def expire_holds(opened: OpenedStream) -> None:
    """Record the end of each legal hold whose `until` has passed, under the maintenance lease.

    Raises:
        DamagedError: as `holds_in_effect`.
        BusyError: as `place_hold`.
    """
    if not has_hold_records(opened):
        return
    for hold in HoldRecords(opened.root, opened.name).all():
        if hold.end is None and hold.is_due(opened.clock()):
            end_hold(opened, hold, "expired", "its time was over")
    # A killed process may have left a record that the log does not count.
    if opened.table.exists():
        count_holds(opened)


def expired_since(opened: OpenedStream, since_ns: int) -> list[str]:
    """The ids of the legal holds whose end by time was recorded at or after an instant.

    Raises:
        DamagedError: a record cannot be read.
    """
    if not has_hold_records(opened):
        return []
    ends = [(hold.id, hold.end) for hold in HoldRecords(opened.root, opened.name).all()]
    return [
        hold_id
        for hold_id, end in ends
        if end is not None and end.kind == "expired" and end.at_ns >= since_ns
    ]


def count_holds(opened: OpenedStream) -> None:
    """Count all records of legal holds in the table's log, so that no removal planned before them commits.

    Raises:
        BusyError: other writers kept coming first.
    """
    from retention.core.table_requirements import AssertHoldEdits
    from retention.core.table_updates import SetHoldEdits

    records = HoldRecords(opened.root, opened.name)
    for _ in range(ATTEMPTS):
        snapshot = opened.store.snapshot()
        counted, there = snapshot.counters.holds, records.count()
        if counted >= there:
            return
        swap = Swap(
            remove=LOGGED_FILES.empty_table(),
            add=FILE_STATS.empty_table(),
            metadata={"run": f"hold-{uuid.uuid4().hex}"},
            requirements=[AssertHoldEdits(counted)],
            updates=[SetHoldEdits(there)],
        )
        try:
            opened.store.commit(swap, snapshot)
        except StalePlanError:
            continue
        reached(Step.HOLD_COUNTED)
        return
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times another legal hold was counted first; the legal hold is recorded, and the "
        "table does not count it yet; run again"
    )


def refuse_held(opened: OpenedStream, counters: Counters, what: str) -> None:
    """Refuse an operation that cannot leave held messages out, while a legal hold is in effect.

    Args:
        opened: the stream.
        counters: as for `holds_in_effect`.
        what: the operation, as the subject of a sentence.

    Raises:
        RefusedError: a legal hold is in effect.
        DamagedError: as `holds_in_effect`.
    """
    holds = holds_in_effect(opened, counters)
    if holds.holds:
        raise RefusedError(
            f"{opened.name}: {what} could remove messages under legal hold {holds.ids}; nothing was changed; "
            f"{command('hold release', holds.holds[0].id, options='--reason …')} ends a legal hold"
        )
