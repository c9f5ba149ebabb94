"""Consistency of consumers: none may contradict itself, its stream, or another consumer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retention.config.checks.consumer_filters import filters_of, has_wildcard_look_alike
from retention.config.checks.workqueue import overlapping_consumers
from retention.consumers.state import contradictions
from retention.context.context import OpenedStream
from retention.errors import RefusedError
from retention.stores.consumer_table import ConsumerRecord


def refuse_inconsistent(
    opened: OpenedStream, records: Sequence[ConsumerRecord], last_seq: int
) -> None:
    """Refuse to remove anything where it is not certain what consumers need.

    Args:
        opened: the stream.
        records: its consumers.
        last_seq: the last sequence that the stream gave out.

    Raises:
        RefusedError: naming the first consumer, and what to do.
    """
    why = next(_wrong(opened, records, last_seq), None)
    if why is not None:
        raise RefusedError(f"{opened.name}: {why}")


def _wrong(opened: OpenedStream, records: Sequence[ConsumerRecord], last_seq: int) -> Iterator[str]:
    for record in records:
        faults = contradictions(record.state, last_seq)
        if faults:
            yield (
                f"the state of consumer {record.consumer} cannot be: {'; '.join(faults)}; what it needs cannot be told"
                ", so nothing was removed; import its state from the broker again, or delete that consumer"
            )
        for wanted in filter(has_wildcard_look_alike, filters_of(record.config)):
            yield (
                f"filter {wanted!r} of consumer {record.consumer} has a token that begins with a wildcard and is none, "
                "which servers match now this way, now that; what it needs cannot be told, so nothing was removed; "
                "give it other filters, or delete it"
            )
    filters = {
        record.consumer: filters_of(record.config)
        for record in records
        if not (record.config.get("direct") or record.config.get("sourcing"))
    }
    both = overlapping_consumers(filters) if opened.config.retention == "workqueue" else None
    if both is not None:
        yield (
            f"consumers {both[0]} and {both[1]} of a work queue take the same messages, each of which is for one "
            "(error code 10100); nothing was removed; give them filters that do not overlap, or delete one"
        )
