"""Edits of a topic's stored offsets: a pass in progress that used the old ones is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.topic import refuse_partition, topic_of
from retention.core.counters import Counters
from retention.core.spoken_commands import command
from retention.errors import UsageError
from retention.history.runs import history_of
from retention.interest.edit import count_edit
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.requests import Request
from retention.storage.crash_points import Step, reached
from retention.stores.offset_table import Change, Offsets, OffsetTable, Reader, StoredOffset


def offsets_of(opened: OpenedStream) -> tuple[Offsets, Counters]:
    """The valid stored offsets, empty for a topic that does not exist yet, and the counters of its partitions.

    Raises:
        UsageError: the stream is not a topic.
        DamagedError: the offsets cannot be read.
    """
    topic_of(opened)
    counters = _counters(opened)
    return OffsetTable(opened.root).live(counters), counters


def edit_offsets(opened: OpenedStream, change: Change, edited: str) -> Offsets:
    """Change the offset document, then count the edit in the message table's log if it is not counted yet.

    The order matters: a pass that has read the old document either finds the counter raised at its commit, or has
    committed before.

    Args:
        opened: the topic, which exists.
        change: maps the old document to the new one; if it protects more of a partition, it raises `revision` and sets
            `counted=False`.
        edited: a short description of the changed offset.

    Raises:
        BusyError: other writers kept coming first.
        DamagedError: the document cannot be read.
    """
    table = OffsetTable(opened.root)
    after = table.update(change)
    if after.counted:
        return after
    count_edit(opened, "offset", edited)
    reached(Step.OFFSET_COUNTED)

    def settle(current: Offsets) -> Offsets:
        return replace(current, counted=True) if current.revision == after.revision else current

    return table.update(settle)


def store_offset(opened: OpenedStream, reader: Reader, offset: int) -> StoredOffset:
    """Store a reader's offset (iggy `StoreConsumerOffset`).

    Args:
        opened: the topic.
        reader: the consumer or group, and the partition.
        offset: the offset of the last message read.

    Raises:
        UsageError: the partition has no such message yet, or the topic no such partition; or the stream is not a topic.
        BusyError, DamagedError: as `edit_offsets`.
    """
    refuse_partition(opened, reader.partition)
    counters = _counters(opened)
    next_offset = counters.next_seq.get(reader.partition, 0)
    if not 0 <= offset < next_offset:
        extent = f"ends at {next_offset - 1:,}" if next_offset else "never had a message"
        raise UsageError(
            f"{opened.name}: {reader.kind} {reader.name} cannot have read up to {offset:,} (invalid offset): partition "
            f"{reader.partition} {extent}; nothing was changed; store the offset of the last message that was read"
        )
    stored = StoredOffset(offset, opened.clock())

    def advance(before: Offsets) -> Offsets:
        # An import requires a topic that was never written to: earlier offsets do not apply to it.
        known = before.counting(counters)
        last = known.of.get(reader)
        if last == stored:
            return before
        after = replace(known, of={**known.of, reader: stored})
        if last is not None and last.offset <= offset:
            return after
        return replace(after, revision=known.revision + 1, counted=False)

    edit_offsets(opened, advance, f"of {reader.kind} {reader.name} in partition {reader.partition}")
    return stored


def bring_offsets(opened: OpenedStream, offsets: Mapping[Reader, int]) -> None:
    """Store the offsets of readers as another server has them, as one change; equal ones change nothing.

    Args:
        opened: the topic, which exists.
        offsets: reader → the offset of the last message read, a stored message's or lower.

    Raises:
        BusyError, DamagedError: as `edit_offsets`.
    """
    counters, now = _counters(opened), opened.clock()

    def brought(before: Offsets) -> Offsets:
        known = before.counting(counters)
        new = {
            reader: StoredOffset(offset, now)
            for reader, offset in offsets.items()
            if reader not in known.of or known.of[reader].offset != offset
        }
        if not new:
            return before
        after = replace(known, of={**known.of, **new})
        if all(
            reader in known.of and known.of[reader].offset < new[reader].offset for reader in new
        ):
            return after
        return replace(after, revision=known.revision + 1, counted=False)

    edit_offsets(opened, brought, "of a server's readers")


def stored_offset(opened: OpenedStream, reader: Reader) -> tuple[StoredOffset, Counters]:
    """A reader's stored offset (iggy `GetConsumerOffset`), and the counters of the partitions.

    Raises:
        UsageError: the reader has stored none; or the topic has no such partition, or the stream is not a topic.
        DamagedError: the document cannot be read.
    """
    refuse_partition(opened, reader.partition)
    offsets, counters = offsets_of(opened)
    stored = offsets.of.get(reader)
    if stored is None:
        raise UsageError(
            f"{opened.name}: {reader.kind} {reader.name} has stored no offset in partition {reader.partition}; nothing "
            f"was changed; {command('offset ls', opened.name)} lists those that have one"
        )
    return stored, counters


def delete_offset(opened: OpenedStream, reader: Reader) -> None:
    """Delete a reader's offset: the partition is no longer protected for it (iggy `DeleteConsumerOffset`).

    Raises:
        UsageError, DamagedError: as `stored_offset`.
        BusyError: as `edit_offsets`.
    """
    _, counters = stored_offset(opened, reader)

    def without_reader(before: Offsets) -> Offsets:
        known = before.counting(counters)
        return replace(
            known, of={other: offset for other, offset in known.of.items() if other != reader}
        )

    edit_offsets(
        opened, without_reader, f"of {reader.kind} {reader.name} in partition {reader.partition}"
    )


def raise_watermark(opened: OpenedStream, request: Request | None, epoch: int) -> None:
    """Raise a partition's watermark to the end of a `delete-segments`: later passes remove messages protected now.

    Args:
        opened: the topic or stream of the request.
        request: the current request; nothing is stored unless it is for a topic whose servers remember it.
        epoch: the epoch of the offsets that it names.

    Raises:
        BusyError, DamagedError: as `edit_offsets`.
    """
    if not isinstance(request, DeleteSegments) or request.up_to is None:
        return
    if topic_of(opened).profile == "v8":
        return
    partition, up_to = request.partition, request.up_to

    def raised(before: Offsets) -> Offsets:
        known = before.in_epoch(epoch)
        watermark = known.watermarks.get(partition, -1)
        return replace(known, watermarks={**known.watermarks, partition: max(watermark, up_to)})

    edit_offsets(opened, raised, f"requested in partition {partition}")


def lower_watermarks(opened: OpenedStream, restored: pa.Table, epoch: int) -> None:
    """Lower the watermarks of `delete-segments` below files that are restored.

    Plans made before depend on the higher watermarks, and are refused.

    Args:
        opened: the topic.
        restored: the restored files, shape `FILE_STATS`.
        epoch: the epoch of their offsets.

    Raises:
        BusyError, DamagedError: as `edit_offsets`.
    """
    firsts = restored.group_by("partition").aggregate([("min_seq", "min")])
    lowest = dict(
        zip(*(firsts[name].to_pylist() for name in ("partition", "min_seq_min")), strict=True)
    )

    def lowered(before: Offsets) -> Offsets:
        known = before.in_epoch(epoch)
        watermarks = {
            partition: min(up_to, lowest.get(partition, up_to + 1) - 1)
            for partition, up_to in known.watermarks.items()
        }
        if watermarks == known.watermarks:
            return before
        return replace(known, watermarks=watermarks, revision=known.revision + 1, counted=False)

    edit_offsets(opened, lowered, "requested and restored")


def _counters(opened: OpenedStream) -> Counters:
    """The counters of the table, which need not exist, raised to the highest offset ever assigned."""
    counters = opened.store.snapshot().counters if opened.table.exists() else Counters()
    return history_of(opened.warehouse, opened.name).above(counters)
