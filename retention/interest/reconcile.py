"""Reconciliation of consumers with a list of configurations, as changes of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.consumers.configured import listed_consumers
from retention.consumers.expiry import mark_used
from retention.consumers.state import ConsumerState
from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.errors import RefusedError
from retention.interest.start_position import state_at_start
from retention.stores.consumer_table import Change, ConsumerRecord


def reconcile(
    opened: OpenedStream,
    listed: Sequence[ConsumerConfig],
    inventory: Inventory,
    records: Sequence[ConsumerRecord],
) -> dict[str, Change]:
    """Plan the change of each listed consumer's record, by name; consumers that are not listed stay.

    Args:
        opened: the stream.
        listed: the wanted configurations.
        inventory: the stream's files, by which a new consumer's start is found.
        records: the existing consumers.

    Raises:
        RefusedError: a listed consumer cannot be created beside those that are there, or not updated so.
    """
    if not listed:
        return {}
    stored = {record.consumer: _stored(opened, record) for record in records}
    now_ns = opened.clock()
    target = opened.config.model_copy(update={"consumers": tuple(listed)})
    return {
        name: partial(_become, wanted, partial(state_at_start, opened, inventory, wanted), now_ns)
        for name, wanted in listed_consumers(target, stored).items()
    }


def with_config(record: ConsumerRecord, config: Mapping[str, Any]) -> ConsumerRecord:
    """A consumer's record with a new configuration, as an edit that is not counted yet."""
    return replace(record, revision=record.revision + 1, counted=False, config=config)


def _become(
    wanted: ConsumerConfig,
    start: Callable[[], ConsumerState],
    now_ns: int,
    current: ConsumerRecord | None,
) -> ConsumerRecord:
    config = wanted.as_json()
    if current is None or current.deleted:
        revision = 1 if current is None else current.revision + 1
        folded = {} if current is None else current.folded
        state = mark_used(config, start(), now_ns)
        return ConsumerRecord(
            wanted.name, config, state, revision=revision, counted=False, folded=folded
        )
    known = ConsumerConfig(**current.config)
    if known.as_json() == config:
        return current
    return replace(with_config(current, config), state=mark_used(config, current.state, now_ns))


def _stored(opened: OpenedStream, record: ConsumerRecord) -> ConsumerConfig:
    try:
        return with_server_defaults(ConsumerConfig(**record.config), opened.config)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise RefusedError(
            f"{opened.name}: consumer {record.consumer} has a configuration that cannot be read ({wrong['msg']}: "
            f"{'.'.join(map(str, wrong['loc']))}), so that no consumer can be listed beside it; nothing was changed; "
            "take the list out of the configuration, or delete that consumer"
        ) from error
