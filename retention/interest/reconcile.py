"""Consumers as somebody wants them: what becomes of their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import resolved
from retention.consumers.configured import listed_consumers
from retention.consumers.expiry import in_use
from retention.consumers.state import ConsumerState
from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.errors import RefusedError
from retention.interest.start_position import state_at_start
from retention.stores.consumer_table import Change, ConsumerRecord


def declared(
    opened: OpenedStream,
    listed: Sequence[ConsumerConfig],
    inventory: Inventory,
    records: Sequence[ConsumerRecord],
) -> dict[str, Change]:
    """By name, what makes of each listed consumer's record what the list says; the others stay.

    Args:
        opened: the stream.
        listed: consumers that shall be so.
        inventory: what it holds: there a new consumer begins.
        records: the consumers that there are.

    Raises:
        RefusedError: beside those that are there, one cannot be created, or cannot become what is listed.
    """
    if not listed:
        return {}
    stored = {record.consumer: _stored(opened, record) for record in records}
    now_ns = opened.clock()
    asking = opened.config.model_copy(update={"consumers": tuple(listed)})
    return {
        name: partial(_become, wanted, partial(state_at_start, opened, inventory, wanted), now_ns)
        for name, wanted in listed_consumers(asking, stored).items()
    }


def edited(record: ConsumerRecord, config: Mapping[str, Any]) -> ConsumerRecord:
    """A record whose consumer is configured anew."""
    return replace(record, revision=record.revision + 1, counted=False, config=config)


def _become(
    wanted: ConsumerConfig,
    start: Callable[[], ConsumerState],
    now_ns: int,
    found: ConsumerRecord | None,
) -> ConsumerRecord:
    config = wanted.as_json()
    if found is None or found.deleted:
        revision = 1 if found is None else found.revision + 1
        folded = {} if found is None else found.folded
        state = in_use(config, start(), now_ns)
        return ConsumerRecord(
            wanted.name, config, state, revision=revision, counted=False, folded=folded
        )
    known = ConsumerConfig(**found.config)
    if known.as_json() == config:
        return found
    return replace(edited(found, config), state=in_use(config, found.state, now_ns))


def _stored(opened: OpenedStream, record: ConsumerRecord) -> ConsumerConfig:
    try:
        return resolved(ConsumerConfig(**record.config), opened.config)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise RefusedError(
            f"{opened.name}: consumer {record.consumer} has a configuration that cannot be read ({wrong['msg']}: "
            f"{'.'.join(map(str, wrong['loc']))}), so that no consumer can be listed beside it; nothing was changed; "
            "take the list out of the configuration, or delete that consumer"
        ) from error
