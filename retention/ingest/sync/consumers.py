"""Consumers of a server's stream in the lake: what they have settled there, so that interest retention releases it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from retention.consumers.state import ConsumerState, new_state
from retention.context.context import OpenedStream
from retention.interest.edit import delete_consumer, edit_consumer
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable

if TYPE_CHECKING:
    from retention.nats.stream import RemoteStream

ORIGIN = "nats-sync"
"""The origin of records that a sync wrote; they are valid from its first commit on."""
_OF_SERVERS = ("JS_MIRROR_", "JS_SRC_")
"""Prefixes of the consumers by which servers fill mirrors and sources; their names change."""


def bring_consumers(opened: OpenedStream, remote: RemoteStream, last_seq: int) -> None:
    """Create, raise and delete consumers as the server has them.

    A server tells up to where a consumer has settled everything, and not which messages above are settled. So its
    consumer here needs everything above: a release comes late, and never takes what the server still keeps for it.
    Consumers of the same name that were made here, or came with a backup, are only raised.

    Args:
        opened: the stream; it is created if it does not exist.
        remote: the server's stream.
        last_seq: the last sequence of the stream here, above which nothing can be settled.

    Raises:
        BusyError: other writers kept coming first.
        DamagedError: a record cannot be read.
    """
    theirs = [each for each in remote.consumers() if not each.name.startswith(_OF_SERVERS)]
    for each in theirs:
        state = new_state(min(each.ack_floor, last_seq) + 1)
        edit_consumer(opened, each.name, partial(_brought, each.name, dict(each.config), state))
    names = {each.name for each in theirs}
    table = ConsumerTable(opened.root, opened.table.lifetime().generation)
    for record in table.live(opened.store.snapshot().counters) if opened.table.exists() else ():
        if record.origin == ORIGIN and record.consumer not in names:
            delete_consumer(opened, record.consumer)


def _brought(
    name: str, config: Mapping[str, Any], state: ConsumerState, stored: ConsumerRecord | None
) -> ConsumerRecord:
    if stored is None or stored.deleted:
        revision = 1 if stored is None else stored.revision + 1
        return ConsumerRecord(name, config, state, revision=revision, counted=False, origin=ORIGIN)
    if stored.state.ack_floor.stream_seq < state.ack_floor.stream_seq:
        stored = replace(stored, state=_raised(stored.state, state))
    if stored.origin == ORIGIN and dict(stored.config) != dict(config):
        stored = replace(stored, config=config, revision=stored.revision + 1, counted=False)
    return stored


def _raised(stored: ConsumerState, state: ConsumerState) -> ConsumerState:
    """The new floor, and the last use as it was; deliveries above the floor are not known any more."""
    return replace(state, last_active_ns=stored.last_active_ns)
