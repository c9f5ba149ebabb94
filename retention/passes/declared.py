"""Consumers that a configuration names: what creating or editing one makes of its record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from retention.consumers.state import new_state
from retention.errors import RefusedError
from retention.stores.consumers import Change, ConsumerRecord


def name_of(config: Mapping[str, Any]) -> str:
    """The name of a consumer that a configuration describes."""
    return str(config.get("name") or config["durable_name"])


def declared_in(stream: str, wanted: Mapping[str, Any], first_seq: int, next_seq: int) -> Change:
    """What makes a consumer as a configuration wants it; fields that it does not name stay.

    Args:
        stream: the stream's name, for messages.
        wanted: the consumer, with the server's JSON names.
        first_seq: the lowest sequence that the stream holds.
        next_seq: the one that the next message gets.
    """

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        if found is None or found.deleted:
            state = new_state(_start(stream, wanted, first_seq, next_seq))
            revision = 1 if found is None else found.revision + 1
            return ConsumerRecord(
                name_of(wanted), dict(wanted), state, revision=revision, counted=False
            )
        config = {**found.config, **wanted}
        return found if config == found.config else edited(found, config=config)

    return change


def edited(record: ConsumerRecord, **changes: Any) -> ConsumerRecord:
    """A record after an edit."""
    return replace(record, revision=record.revision + 1, counted=False, **changes)


def _start(stream: str, wanted: Mapping[str, Any], first_seq: int, next_seq: int) -> int:
    """The first message that a new consumer needs (the server's `deliver_policy`)."""
    match wanted.get("deliver_policy", "all"):
        case "all":
            return first_seq
        case "new":
            return next_seq
        case "by_start_sequence":
            return int(wanted["opt_start_seq"])
        case other:
            raise RefusedError(
                f"{stream}: consumer {name_of(wanted)} of the configuration does not exist yet, and a consumer with "
                f"deliver_policy {other} is not created from there; nothing was changed; create it on the broker and "
                "import it, or choose all, new or by_start_sequence"
            )
