"""Edits of consumers: create, change and delete; a pass in progress that used the old ones is refused."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from retention.config.consumer import ConsumerConfig
from retention.consumers.state import ConsumerState
from retention.context.context import OpenedStream
from retention.core.table_requirements import AssertConsumerEdits
from retention.core.table_updates import SetConsumerEdits
from retention.errors import BusyError, StalePlanError
from retention.interest.interest import is_expired, pins_of
from retention.interest.reconcile import reconcile
from retention.plan.consumer_snapshot import Pin
from retention.ports import Swap
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage.crash_points import Step, reached
from retention.stores.consumer_table import Change, ConsumerRecord, ConsumerTable, no_consumer

ATTEMPTS = 20


def edit_consumer(opened: OpenedStream, consumer: str, change: Change) -> ConsumerRecord:
    """Change a consumer's record, then count the edit in the message table's log; return the new record.

    The order matters, and the record is marked as counted only after it is: a release that has read the old record
    either finds the counter raised at its commit, or has committed before.

    Args:
        opened: the stream; its table is created if it does not exist.
        consumer: the consumer's name.
        change: maps the old record to the new one; an edit sets `counted=False`.

    Raises:
        BusyError: other writers kept coming first.
        DamagedError: its record cannot be read.
    """
    opened.store.create()
    table = ConsumerTable(opened.root, opened.table.lifetime().generation)
    record = table.update(consumer, change)
    if record.counted:
        return record
    count_edit(opened, "consumer", consumer)
    reached(Step.CONSUMER_COUNTED)

    def settle(current: ConsumerRecord | None) -> ConsumerRecord:
        if current is None or current.revision != record.revision:
            return current or record
        return replace(current, counted=True)

    return table.update(consumer, settle)


def edit_declared(opened: OpenedStream) -> None:
    """Create or edit the consumers that the stream's configuration lists; the others are unchanged.

    Raises:
        RefusedError: a listed consumer cannot be created or updated as listed.
        DamagedError: as `edit_consumer`; or all records of existing consumers are lost.
        BusyError: as `edit_consumer`.
    """
    if opened.config.consumers:
        if opened.table.exists():
            ConsumerTable(opened.root).refuse_lost(opened.store.snapshot().counters)
        put_consumers(opened, opened.config.consumers)


def put_consumers(opened: OpenedStream, listed: Sequence[ConsumerConfig]) -> None:
    """Create or edit consumers so that they match their configurations; the stream is created if it does not exist.

    Raises:
        RefusedError, BusyError, DamagedError: as `edit_declared`.
    """
    opened.store.create()
    inventory = opened.store.inventory(opened.store.snapshot())
    records = ConsumerTable(opened.root).live(inventory.counters)
    for name, change in reconcile(opened, listed, inventory, records).items():
        edit_consumer(opened, name, change)


def count_edit(opened: OpenedStream, what: str, name: str) -> None:
    """Count an edit in the message table's log, so that no pass planned before it commits.

    Args:
        opened: the stream.
        what: the kind of edited object, one word.
        name: the object's name.

    Raises:
        BusyError: other writers kept coming first.
    """
    for _ in range(ATTEMPTS):
        snapshot = opened.store.snapshot()
        count = snapshot.counters.consumers
        swap = Swap(
            remove=LOGGED_FILES.empty_table(),
            add=FILE_STATS.empty_table(),
            metadata={"run": f"{what}-{uuid.uuid4().hex}", what: name},
            requirements=[AssertConsumerEdits(count)],
            updates=[SetConsumerEdits(count + 1)],
        )
        try:
            opened.store.commit(swap, snapshot)
        except StalePlanError:
            continue
        return
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times another {what} was edited first; {what} {name} is edited, and the table does "
        "not count it yet; run again"
    )


def delete_expired(opened: OpenedStream, as_of_ns: int) -> tuple[Pin, ...]:
    """Delete the consumers that were unused for too long; return their earlier pins.

    None is deleted where `retention` is `limits`: no pass needs to. A consumer used concurrently is kept.

    Raises:
        BusyError, DamagedError: as `edit_consumer`.
    """
    if opened.config.retention == "limits":
        return ()
    records = ConsumerTable(opened.root).live(opened.store.snapshot().counters)
    expired = [record for record in records if is_expired(opened, record, as_of_ns)]

    return pins_of(
        record
        for record in expired
        if edit_consumer(
            opened, record.consumer, partial(_without_expired, opened, as_of_ns, record)
        ).deleted
    )


def delete_pinned(opened: OpenedStream, pins: Sequence[Pin]) -> None:
    """Delete the consumers that a plan names as unused; those already deleted are skipped.

    Raises:
        StalePlanError: a consumer was used or edited since; those before it are deleted.
        BusyError, DamagedError: as `edit_consumer`.
    """
    for pin in pins:
        edit_consumer(opened, pin.consumer, partial(_without_pinned, opened, pin))


def _without_expired(
    opened: OpenedStream, as_of_ns: int, before: ConsumerRecord, current: ConsumerRecord | None
) -> ConsumerRecord:
    record = current or before
    return _deleted(record) if is_expired(opened, record, as_of_ns) else record


def _without_pinned(
    opened: OpenedStream, pin: Pin, current: ConsumerRecord | None
) -> ConsumerRecord:
    if current is None or not (current.deleted or pins_of([current]) == (pin,)):
        raise StalePlanError(
            f"{opened.name}: consumer {pin.consumer} was inactive when this plan was made, and has been used since; no "
            "message was removed; plan again"
        )
    return _deleted(current)


def delete_consumer(opened: OpenedStream, consumer: str) -> ConsumerRecord:
    """Delete a consumer: no message is kept for it any longer.

    Raises:
        UsageError: there is no such consumer.
        BusyError, DamagedError: as `edit_consumer`.
    """
    table = ConsumerTable(opened.root, opened.table.lifetime().generation)
    stored = table.read(consumer)
    if stored is None or (stored.deleted and stored.counted):
        raise no_consumer(opened.name, consumer)

    def deleted(record: ConsumerRecord | None) -> ConsumerRecord:
        return _deleted(record or stored)

    return edit_consumer(opened, consumer, deleted)


def _deleted(record: ConsumerRecord) -> ConsumerRecord:
    if record.deleted:
        return record
    return replace(
        record, revision=record.revision + 1, counted=False, deleted=True, state=ConsumerState()
    )
