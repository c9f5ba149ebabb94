"""Asking a stream's consumers what they still need: its consumer table, and what its configuration says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.consumers.state import contradictions
from retention.errors import RefusedError
from retention.opened import OpenedStream
from retention.passes.audience import Audience, Pin
from retention.passes.declared import declared
from retention.passes.position import next_seq
from retention.rules.release import Interest
from retention.segments import Inventory
from retention.stores.consumers import ConsumerRecord, ConsumerTable


def audience_of(opened: OpenedStream, inventory: Inventory) -> Audience:
    """What every consumer of a stream needs; nobody is asked where its policy does not look at consumers.

    Args:
        opened: the stream.
        inventory: what it holds, read before: an edit that comes later is one that the commit meets.

    Raises:
        RefusedError: a consumer's state contradicts itself or the stream.
        DamagedError: a consumer's record cannot be read.
    """
    if not opened.config.policy().asks_consumers:
        return Audience()
    records = consumers_of(opened, inventory)
    last_seq = next_seq(opened, inventory) - 1
    for record in records:
        _refuse_contradictions(opened, record, last_seq)
    return Audience(
        tuple(interest_of(record, opened.config.subjects) for record in records),
        tuple(Pin(record.consumer, record.revision, record.version) for record in records),
    )


def consumers_of(opened: OpenedStream, inventory: Inventory) -> list[ConsumerRecord]:
    """A stream's consumers by name: the stored ones, and those that its configuration lists as it wants them.

    Raises:
        DamagedError: a consumer's record cannot be read.
        RefusedError: the configuration lists one that cannot be so.
    """
    table = ConsumerTable(opened.root)
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


def filters_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The subjects that a consumer takes, from its configuration with the server's names; none: all of its stream."""
    several = tuple(config.get("filter_subjects") or ())
    single = config.get("filter_subject")
    return several or ((single,) if single else ())


def _refuse_contradictions(opened: OpenedStream, record: ConsumerRecord, last_seq: int) -> None:
    found = contradictions(record.state, last_seq)
    if found:
        raise RefusedError(
            f"{opened.name}: the state of consumer {record.consumer} cannot be: {'; '.join(found)}; what it needs "
            "cannot be told, so nothing was removed; import its state from the broker again, or delete that consumer"
        )
