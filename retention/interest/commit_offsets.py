"""Storing and deleting offsets of a topic, so that a pass under way that counts on the old ones is refused."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.topic import refuse_partition, topic_of
from retention.core.inventory import Counters
from retention.errors import UsageError
from retention.history.runs import history_of
from retention.interest.edit import count_edit
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.requests import Request
from retention.storage.crash_points import Step, reached
from retention.stores.offset_table import Change, Offsets, OffsetTable, Reader, StoredOffset


def offsets_of(opened: OpenedStream) -> tuple[Offsets, Counters]:
    """The stored offsets that count, none of a topic that does not exist yet, and how far its partitions reach.

    Raises:
        UsageError: it is no topic.
        DamagedError: they cannot be read.
    """
    topic_of(opened)
    counters = _counters(opened)
    return OffsetTable(opened.root).live(counters), counters


def edit_offsets(opened: OpenedStream, change: Change, edited: str) -> Offsets:
    """Change the document, then have the message table's log count it, if it says that it is not counted.

    In that order: a pass that has read the old document finds the counter raised when it commits, or has committed
    before.

    Args:
        opened: the topic, which exists.
        change: what becomes of the document; where a partition comes to be held longer, it raises `revision` and says
            `counted=False`.
        edited: what was changed, in a few words.

    Raises:
        BusyError: rivals kept coming first.
        DamagedError: the document cannot be read.
    """
    table = OffsetTable(opened.root)
    after = table.update(change)
    if after.counted:
        return after
    count_edit(opened, "offset", edited)
    reached(Step.OFFSET_COUNTED)

    def settle(found: Offsets) -> Offsets:
        return replace(found, counted=True) if found.revision == after.revision else found

    return table.update(settle)


def store_offset(opened: OpenedStream, reader: Reader, offset: int) -> StoredOffset:
    """Say how far somebody has read (iggy `StoreConsumerOffset`).

    Args:
        opened: the topic.
        reader: who, and of which partition.
        offset: of the last message that was read.

    Raises:
        UsageError: the partition has no such message yet, or the topic no such partition; or it is no topic.
        BusyError, DamagedError: as `edit_offsets`.
    """
    refuse_partition(opened, reader.partition)
    counters = _counters(opened)
    next_offset = counters.next_seq.get(reader.partition, 0)
    if not 0 <= offset < next_offset:
        told = f"ends at {next_offset - 1:,}" if next_offset else "never held a message"
        raise UsageError(
            f"{opened.name}: {reader.kind} {reader.name} cannot have read up to {offset:,} (invalid offset): partition "
            f"{reader.partition} {told}; nothing was changed; store the offset of the last message that was read"
        )
    stored = StoredOffset(offset, opened.clock())

    def come(before: Offsets) -> Offsets:
        # An import needs a topic that was never written to: what another one has left belongs to nothing for good.
        known = before.counting(counters)
        last = known.of.get(reader)
        if last == stored:
            return before
        after = replace(known, of={**known.of, reader: stored})
        if last is not None and last.offset <= offset:
            return after
        return replace(after, revision=known.revision + 1, counted=False)

    edit_offsets(opened, come, f"of {reader.kind} {reader.name} in partition {reader.partition}")
    return stored


def stored_offset(opened: OpenedStream, reader: Reader) -> tuple[StoredOffset, Counters]:
    """How far somebody has read (iggy `GetConsumerOffset`), and how far the partitions reach.

    Raises:
        UsageError: nobody has said so; or the topic has no such partition, or it is no topic.
        DamagedError: the document cannot be read.
    """
    refuse_partition(opened, reader.partition)
    offsets, counters = offsets_of(opened)
    found = offsets.of.get(reader)
    if found is None:
        raise UsageError(
            f"{opened.name}: {reader.kind} {reader.name} has stored no offset in partition {reader.partition}; nothing "
            f"was changed; `retention offset ls {opened.name}` lists who has"
        )
    return found, counters


def delete_offset(opened: OpenedStream, reader: Reader) -> None:
    """Forget how far somebody has read: the partition is held for it no longer (iggy `DeleteConsumerOffset`).

    Raises:
        UsageError, DamagedError: as `stored_offset`.
        BusyError: as `edit_offsets`.
    """
    _, counters = stored_offset(opened, reader)

    def gone(before: Offsets) -> Offsets:
        known = before.counting(counters)
        return replace(known, of={who: come for who, come in known.of.items() if who != reader})

    edit_offsets(opened, gone, f"of {reader.kind} {reader.name} in partition {reader.partition}")


def keep_asked(opened: OpenedStream, request: Request | None, epoch: int) -> None:
    """Remember up to where `delete-segments` reaches, so that later passes take what is held back now.

    Args:
        opened: what the request is for.
        request: what is carried out; nothing happens unless it is for a topic whose servers remember it.
        epoch: of the offsets that it names.

    Raises:
        BusyError, DamagedError: as `edit_offsets`.
    """
    if not isinstance(request, DeleteSegments) or request.up_to is None:
        return
    if topic_of(opened).profile == "v8":
        return
    partition, up_to = request.partition, request.up_to

    def reaching(before: Offsets) -> Offsets:
        known = before.in_epoch(epoch)
        reached_yet = known.watermarks.get(partition, -1)
        return replace(known, watermarks={**known.watermarks, partition: max(reached_yet, up_to)})

    edit_offsets(opened, reaching, f"asked for in partition {partition}")


def forget_asked(opened: OpenedStream, restored: pa.Table, epoch: int) -> None:
    """Take back what `delete-segments` has asked for, as far as it comes back.

    Plans that were made before count on it, and are refused.

    Args:
        opened: the topic.
        restored: the files that come back, of shape `FILE_STATS`.
        epoch: of their offsets.

    Raises:
        BusyError, DamagedError: as `edit_offsets`.
    """
    firsts = restored.group_by("partition").aggregate([("min_seq", "min")])
    lowest = dict(
        zip(*(firsts[name].to_pylist() for name in ("partition", "min_seq_min")), strict=True)
    )

    def receding(before: Offsets) -> Offsets:
        known = before.in_epoch(epoch)
        left = {
            partition: min(up_to, lowest.get(partition, up_to + 1) - 1)
            for partition, up_to in known.watermarks.items()
        }
        if left == known.watermarks:
            return before
        return replace(known, watermarks=left, revision=known.revision + 1, counted=False)

    edit_offsets(opened, receding, "asked for and brought back")


def _counters(opened: OpenedStream) -> Counters:
    """The counters of the table, which need not exist; no offset that was given out is forgotten."""
    counters = opened.store.snapshot().counters if opened.store.exists() else Counters()
    return history_of(opened.warehouse, opened.name).above(counters)
