"""Asking a stream's consumers what they still need: its consumer table, and what its configuration says of it."""

from __future__ import annotations

from collections.abc import Iterable

from retention.config.checks.consumer_filters import filters_of
from retention.consumers.expiry import is_over
from retention.context.context import OpenedStream
from retention.context.stream_tail import next_seq
from retention.core.inventory import Inventory
from retention.interest.consistency import refuse_unsound
from retention.interest.reconcile import declared
from retention.plan.consumer_snapshot import Audience, Pin
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable


def audience_of(opened: OpenedStream, inventory: Inventory, as_of_ns: int) -> Audience:
    """What every consumer of a stream needs; nobody is asked where its policy does not look at consumers.

    Args:
        opened: the stream.
        inventory: what it holds, read before: an edit that comes later is one that the commit meets.
        as_of_ns: the pass's instant: who was not in use for too long by then is not asked.

    Raises:
        RefusedError: consumers contradict themselves, the stream, or one another.
        DamagedError: a consumer's record cannot be read.
    """
    if not opened.config.policy().asks_consumers:
        return Audience()
    records = consumers_of(opened, inventory)
    expired = [record for record in records if is_expired(opened, record, as_of_ns)]
    over = {record.consumer for record in expired}
    records = [record for record in records if record.consumer not in over]
    last_seq = next_seq(opened, inventory) - 1
    refuse_unsound(opened, records, last_seq)
    return Audience(
        tuple(interest_of(record, opened.config.subjects) for record in records),
        pins_of(records),
        pins_of(expired),
    )


def is_expired(opened: OpenedStream, record: ConsumerRecord, as_of_ns: int) -> bool:
    """Whether nobody has used a consumer for too long.

    One that the configuration lists is wanted all the same, and where `retention` is `limits` none is ever deleted.
    """
    if opened.config.retention == "limits":
        return False
    listed = any(one.name == record.consumer for one in opened.config.consumers)
    return not listed and is_over(record.config, record.state, as_of_ns)


def pins_of(records: Iterable[ConsumerRecord]) -> tuple[Pin, ...]:
    """What a plan remembers of consumers."""
    return tuple(Pin(record.consumer, record.revision, record.version) for record in records)


def consumers_of(opened: OpenedStream, inventory: Inventory) -> list[ConsumerRecord]:
    """A stream's consumers by name: the stored ones, and those that its configuration lists as it wants them.

    Raises:
        DamagedError: a consumer's record cannot be read, or all of them are gone.
        RefusedError: the configuration lists one that cannot be so.
    """
    table = ConsumerTable(opened.root)
    table.refuse_lost(inventory.counters)
    records = table.live(inventory.counters)
    found = {record.consumer: record for record in records}
    for name, change in declared(opened, opened.config.consumers, inventory, records).items():
        found[name] = change(found.get(name) or table.read(name))
    return [record for _, record in sorted(found.items())]


def interest_of(record: ConsumerRecord, subjects: tuple[str, ...]) -> Interest:
    """What a consumer needs, from its configuration and state.

    Args:
        record: the consumer.
        subjects: the stream's: a consumer whose filters are the same wants every message.
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
