"""The readers of a stream under repair of its sequences: none is beyond its end when the repair commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from retention.consumers.state import truncate_state
from retention.context.context import OpenedStream
from retention.datafile.segment_writer import PARTITION
from retention.errors import StalePlanError
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from retention.stores.offset_table import Offsets, OffsetTable


def take_back(
    opened: OpenedStream,
    consumers: Sequence[str],
    next_seq: Mapping[int, int],
    epochs: tuple[int, int],
) -> None:
    """Move readers back to the new end before the commit: messages assigned after it would otherwise count as settled.

    Args:
        opened: the stream.
        consumers: those beyond its end.
        next_seq: partition → the next sequence after the repair.
        epochs: the epochs before and after its commit.

    Raises:
        StalePlanError: a consumer was deleted concurrently.
    """
    if opened.config.topic is not None:
        _carry_offsets(opened, next_seq, *epochs)
        return
    last_seq = next_seq[PARTITION] - 1

    def taken_back(record: ConsumerRecord | None) -> ConsumerRecord:
        if record is None:
            raise StalePlanError(f"{opened.name}: a consumer was deleted meanwhile; run again")
        return replace(record, state=truncate_state(record.state, last_seq))

    table = ConsumerTable(opened.root, opened.table.lifetime().generation)
    for consumer in consumers:
        table.update(consumer, taken_back)


def _carry_offsets(
    opened: OpenedStream, next_seq: Mapping[int, int], here: int, epoch: int
) -> None:
    """Carry stored offsets to the epoch that the commit begins; without that commit the old ones still count."""
    table = OffsetTable(opened.root)
    if not table.read().version:
        return

    def carried(before: Offsets) -> Offsets:
        known = before.in_epoch(here)
        stored = {
            reader: replace(
                stored_offset,
                offset=min(stored_offset.offset, max(next_seq[reader.partition] - 1, 0)),
            )
            for reader, stored_offset in known.of.items()
        }
        return replace(known, of=stored, epoch=epoch, other=replace(known, other=None))

    table.update(carried)
