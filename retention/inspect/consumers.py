"""The consumers of a stream as users and programs read them: configuration, progress, and undelivered messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from retention.config.checks.consumer_filters import filters_of
from retention.context.context import OpenedStream
from retention.context.subject_counts import counts_in_pieces
from retention.core.display import Displayed
from retention.core.inventory import Inventory
from retention.core.json_object import JsonObject
from retention.core.spans import spans_of
from retention.interest.interest import interest_of
from retention.plan.remaining import all_remaining
from retention.planners.probe import read_span
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable


@dataclass(frozen=True, repr=False)
class ConsumerInfo(Displayed):
    """One consumer, with the server's names (CONSUMER.INFO)."""

    stream: str
    name: str
    config: Mapping[str, Any]
    delivered: Mapping[str, int]
    """`consumer_seq` and `stream_seq` of the last delivery."""
    ack_floor: Mapping[str, int]
    """`consumer_seq` and `stream_seq` up to which everything is settled."""
    num_ack_pending: int
    num_redelivered: int
    num_pending: int
    """Messages that it wants and has not received."""
    revision: int
    """Number of times that the consumer was created, edited or deleted."""

    @property
    def filters(self) -> tuple[str, ...]:
        """Its filter subjects; empty: all subjects of its stream."""
        return filters_of(self.config)

    def display_fields(self) -> JsonObject:
        """Its position and pending messages; of its configuration the filters alone."""
        return {
            "stream": self.stream,
            "consumer": self.name,
            "filters": self.filters,
            "delivered": self.delivered["stream_seq"],
            "ack_floor": self.ack_floor["stream_seq"],
            "ack_pending": self.num_ack_pending,
            "redelivered": self.num_redelivered,
            "pending": self.num_pending,
        }

    def as_json(self) -> JsonObject:
        """The consumer as JSON values."""
        return asdict(self)


def stored_consumers(opened: OpenedStream) -> list[ConsumerRecord]:
    """The stored consumers of a stream, by name.

    Raises:
        DamagedError: a consumer's record is damaged.
    """
    if not opened.table.exists():
        return []
    return ConsumerTable(opened.root).live(opened.store.snapshot().counters)


def consumer_infos(opened: OpenedStream, records: Sequence[ConsumerRecord]) -> list[ConsumerInfo]:
    """Some stored consumers of a stream, with the number of undelivered messages for each.

    Raises:
        DamagedError: a required data file is damaged.
    """
    if not records:
        return []
    inventory = opened.store.inventory(opened.store.snapshot())
    pending = _still_to_come(opened, inventory, records)
    return [
        ConsumerInfo(
            stream=opened.name,
            name=record.consumer,
            config=record.config,
            delivered=vars(record.state.delivered).copy(),
            ack_floor=vars(record.state.ack_floor).copy(),
            num_ack_pending=record.state.num_ack_pending,
            num_redelivered=record.state.num_redelivered(record.config.get("max_deliver", -1)),
            num_pending=count,
            revision=record.revision,
        )
        for record, count in zip(records, pending, strict=True)
    ]


def _still_to_come(
    opened: OpenedStream, inventory: Inventory, records: Sequence[ConsumerRecord]
) -> list[int]:
    """Count the messages that each consumer wants above its last delivery."""
    subjects = opened.config.subjects
    interests = [_above_lasts(record, interest_of(record, subjects)) for record in records]
    filtered = [interest for interest in interests if interest.filters]
    matching = iter(_matching(opened, inventory, filtered))
    messages = inventory.files["messages"].to_numpy()
    pending = []
    for record, interest in zip(records, interests, strict=True):
        wanted = next(matching) if interest.filters else messages
        above = inventory.files["min_seq"].to_numpy() > interest.delivered
        count = int(wanted[above].sum()) + _in_part(opened, inventory, interest)
        pending.append(count + record.state.lasts_to_come)
    return pending


def _matching(
    opened: OpenedStream, inventory: Inventory, interests: Sequence[Interest]
) -> list[np.ndarray]:
    """Count the messages of each file that match the filters of each interest."""
    wanted = [np.zeros(inventory.files.num_rows, dtype=np.int64) for _ in interests]
    if interests:
        for counts in counts_in_pieces(opened.store, inventory.files):
            for interest, messages in zip(interests, wanted, strict=True):
                matching = counts.filter(interest.matches(counts["subject"]))
                np.add.at(messages, matching["file"].to_numpy(), matching["messages"].to_numpy())
    return wanted


def _above_lasts(record: ConsumerRecord, interest: Interest) -> Interest:
    """The interest of a consumer as if the messages up to its `until` had been delivered: its lasts cover these."""
    return replace(interest, delivered=max(interest.delivered, record.state.until))


def _in_part(opened: OpenedStream, inventory: Inventory, interest: Interest) -> int:
    """Count the wanted messages above the last delivery in the files that contain it."""
    spans, stored, count = spans_of(inventory.files), all_remaining(inventory), 0
    split = (spans.min_seq <= interest.delivered) & (spans.max_seq > interest.delivered)
    for span in np.flatnonzero(split).tolist():
        part = stored.stored_part(*stored.rows_of(spans, span))
        begun = part.filter(pc.less_equal(part["min_seq"], interest.delivered))
        rows, _, _ = read_span(tuple(opened.store.data_files(begun)), ("seq", "subject"))
        above = rows.filter(pc.greater(rows["seq"], interest.delivered))
        count += int(interest.matches(above["subject"]).sum())
    return count
