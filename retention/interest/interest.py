"""Interest of a stream's consumers, from its consumer table and the consumers that its configuration lists."""

from __future__ import annotations

from collections.abc import Iterable

from retention.config.checks.consumer_filters import filters_of
from retention.consumers.expiry import has_expired
from retention.context.context import OpenedStream
from retention.context.position import next_seq
from retention.core.inventory import Inventory
from retention.interest.consistency import refuse_inconsistent
from retention.interest.reconcile import reconcile
from retention.plan.consumer_snapshot import ConsumerSnapshot, Pin
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable


def consumer_snapshot_of(
    opened: OpenedStream, inventory: Inventory, as_of_ns: int
) -> ConsumerSnapshot:
    """Take a snapshot of the interest of a stream's consumers; empty where its policy does not consult consumers.

    Args:
        opened: the stream.
        inventory: the stream's files, read before the consumers: the commit detects any later edit.
        as_of_ns: the pass's instant: consumers that have expired by then have no interest.

    Raises:
        RefusedError: consumers contradict themselves, the stream, or one another.
        DamagedError: a consumer's record cannot be read.
    """
    if not opened.config.policy().asks_consumers:
        return ConsumerSnapshot()
    records = consumers_of(opened, inventory)
    expired = [record for record in records if is_expired(opened, record, as_of_ns)]
    over = {record.consumer for record in expired}
    records = [record for record in records if record.consumer not in over]
    last_seq = next_seq(opened, inventory) - 1
    refuse_inconsistent(opened, records, last_seq)
    return ConsumerSnapshot(
        tuple(interest_of(record, opened.config.subjects) for record in records),
        pins_of(records),
        pins_of(expired),
    )


def is_expired(opened: OpenedStream, record: ConsumerRecord, as_of_ns: int) -> bool:
    """Whether nobody has used a consumer for too long.

    A consumer that the configuration lists never expires, and none does where `retention` is `limits`.
    """
    if opened.config.retention == "limits":
        return False
    listed = any(consumer.name == record.consumer for consumer in opened.config.consumers)
    return not listed and has_expired(record.config, record.state, as_of_ns)


def pins_of(records: Iterable[ConsumerRecord]) -> tuple[Pin, ...]:
    """Pin the revisions of consumers, for a plan."""
    return tuple(Pin(record.consumer, record.revision, record.version) for record in records)


def consumers_of(opened: OpenedStream, inventory: Inventory) -> list[ConsumerRecord]:
    """A stream's consumers sorted by name: the stored ones, and those in its configuration as listed there.

    Raises:
        DamagedError: a consumer's record cannot be read, or all of them are lost.
        RefusedError: a listed consumer cannot be created, or not updated so.
    """
    table = ConsumerTable(opened.root)
    table.refuse_lost(inventory.counters)
    records = table.live(inventory.counters)
    by_name = {record.consumer: record for record in records}
    for name, change in reconcile(opened, opened.config.consumers, inventory, records).items():
        by_name[name] = change(by_name.get(name) or table.read(name))
    return [record for _, record in sorted(by_name.items())]


def interest_of(record: ConsumerRecord, subjects: tuple[str, ...]) -> Interest:
    """Derive a consumer's interest from its configuration and state.

    Args:
        record: the consumer.
        subjects: the stream's subjects: a consumer whose filters are the same wants every message.
    """
    filters = filters_of(record.config)
    state = record.state
    return Interest(
        consumer=record.consumer,
        ack_floor=state.ack_floor.stream_seq,
        delivered=state.delivered.stream_seq,
        filters=() if set(filters) == set(subjects) else filters,
        explicit=record.config.get("ack_policy") == "explicit",
        pending=state.pending["seq"].to_numpy(),
        redelivered=state.redelivered["seq"].to_numpy(),
    )
