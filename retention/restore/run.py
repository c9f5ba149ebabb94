"""Restore of removed messages from an archive: in place, or as a new stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.change import Change
from retention.apply.own_manifests import home_of
from retention.apply.recorded_run import RecordedRun, recorded_run
from retention.context.context import OpenedStream
from retention.context.dropped import refuse_dropped
from retention.context.position import Position, position_in
from retention.context.topic import has_data
from retention.core.display import Displayed
from retention.core.inventory import ExpectedStats, Inventory
from retention.core.json_object import JsonObject
from retention.core.labels import on_stream
from retention.core.table_requirements import RowsCompared
from retention.core.table_updates import (
    TableUpdate,
    set_batches,
    set_next_seqs,
    set_open_bases,
)
from retention.engines.select import Engines
from retention.errors import (
    BusyError,
    ConflictError,
    RefusedError,
    RetentionError,
    StalePlanError,
    UsageError,
)
from retention.history.kinds import RestoredRun
from retention.ingest.idempotency import BatchIdentity, is_repeat
from retention.ingest.recorded_commit import recorded_removal
from retention.ingest.turns import LEASE_WAIT_S
from retention.planners.cached import plan_pass
from retention.ports import Snapshot
from retention.restore.copy_back import stage_copies
from retention.restore.erased import refuse_unerased
from retention.restore.left_out import IgnoredManifest, left_out
from retention.restore.open_archive import Archive, open_any_archive, open_archive
from retention.restore.rivals import refuse_rivals
from retention.restore.select import (
    CopyPart,
    MessageRange,
    StoredFile,
    matching_copies,
    refuse_other_kind,
    select_parts,
)
from retention.restore.withdrawn import withdrawn_markers
from retention.schemas.files import FILE_STATS
from retention.storage.places import place_of
from retention.stores.checks import inventory as index
from retention.stores.lease import lease
from retention.stores.topic_settings import keep_settings

_WRITER = "restore/"


@dataclass(frozen=True, repr=False)
class Restored(Displayed):
    """Result of a restore."""

    stream: str
    source: str
    """The directory of the archive."""
    messages: int
    bytes: int
    already: int = 0
    """Wanted messages that already exist; they are unchanged."""
    run: str | None = None
    """Name of the run; None: there was nothing to restore."""
    expires_again: Mapping[str, int] | None = field(default_factory=dict)
    """Rule → number of the restored messages that the next pass would remove; None: no pass can be planned now."""
    left_out: Sequence[IgnoredManifest] = ()
    """The last manifest of each other history of the table in the archive: of a copy of the warehouse, or from before
    it was restored from a backup."""

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        again = None if self.expires_again is None else dict(self.expires_again)
        others = [manifest.as_json() for manifest in self.left_out]
        return vars(self) | {"expires_again": again, "left_out": others}


@on_stream
def restore(
    opened: OpenedStream,
    place: str | None,
    wanted: MessageRange,
    into: OpenedStream | None,
    engines: Engines,
) -> Restored:
    """Restore messages that runs removed from a stream.

    Args:
        opened: the stream, by its name at the time of removal.
        place: its archive; None: the one of its configuration.
        wanted: the messages to restore.
        into: a new stream for them; None: they are restored in place.
        engines: the engines that copy rows.

    Raises:
        UsageError: neither `place` nor the configuration names an archive; or as `restore_in_place` and `restore_as`.
    """
    source = place or opened.config.archive
    if source is None:
        raise UsageError(
            f"{opened.name}: its configuration names no archive; say with --from where what it has left lies"
        )
    source = place_of(source)
    if into is None:
        return restore_in_place(opened, source, wanted, engines)
    return restore_as(into, opened, source, wanted, engines)


def restore_in_place(
    opened: OpenedStream, place: str, wanted: MessageRange, engines: Engines
) -> Restored:
    """Restore removed messages in place; existing messages are unchanged.

    They keep their sequences and segments. The stream's next sequence is unchanged.

    Args:
        opened: the stream, which exists.
        place: its archive.
        wanted: the messages to restore.
        engines: the engines that copy rows.

    Raises:
        UsageError: the archive has nothing of the stream, or no wanted message.
        RefusedError: the archive is of another table, or from before a purge; or the stream is dropped.
        DamagedError: the archive is damaged or incomplete; nothing was changed.
        BusyError: another run is in progress, or another commit came first.
    """
    refuse_dropped(opened, "restore into a new stream with --as")
    with (
        recorded_removal(opened) as run,
        lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S),
    ):
        opened.store.create()
        snapshot = opened.store.snapshot()
        inventory = opened.store.inventory(snapshot)
        archive = open_archive(place, home_of(opened, snapshot))
        refuse_unerased(opened, archive.directory)
        copies = matching_copies(archive, wanted)
        refuse_rivals(archive.directory, copies, archive.manifest_of)
        there = _there(opened, inventory)
        withdrawn = withdrawn_markers(opened, snapshot.counters.epoch)
        selected, already = select_parts(archive.directory, copies, there, wanted, withdrawn)
        if not selected:
            others = left_out(archive.others)
            return Restored(opened.name, archive.directory, 0, 0, already, left_out=others)
        ends = _ends(opened.name, position_in(opened, snapshot, inventory), selected)
        with _transaction(opened, snapshot, run) as transaction:
            added = stage_copies(opened, transaction, archive, selected, inventory.files, engines)
            live = inventory.files.select(FILE_STATS.names)
            index.refuse_overlaps(opened.name, index.in_order(pa.concat_tables([live, added])))
            compared = RowsCompared(live["path"].combine_chunks())
            change = _change(added, set_next_seqs(ends), compared)
            transaction.commit(_intent(opened, run, archive, added, ends), change)
        again = _expires_again(opened, added, engines)
    return _restored(opened, archive, added, run, again, already)


def restore_as(
    target: OpenedStream, source: OpenedStream, place: str, wanted: MessageRange, engines: Engines
) -> Restored:
    """Restore messages that runs removed from a stream as a new stream that was never written to.

    They keep their sequences, and their segments are sealed.

    Args:
        target: the new stream; it is created if it does not exist. A topic is restored to a topic, which must be
            listed.
        source: the original stream, by its name in the archive.
        place: the archive.
        wanted: the messages to restore.
        engines: the engines that copy rows.

    Raises:
        UsageError, DamagedError, BusyError: as `restore_in_place`.
        RefusedError: the target contains, or contained, messages, or only one of the two is a topic.
    """
    home = home_of(source, source.store.snapshot()) if source.table.exists() else None
    archive = open_any_archive(place, source.name, home)
    refuse_unerased(source, archive.directory)
    refuse_other_kind(target, archive)
    copies = matching_copies(archive, wanted)
    refuse_rivals(archive.directory, copies, archive.manifest_of)
    selected, _ = select_parts(archive.directory, copies, (), wanted, {})
    identity = BatchIdentity(_WRITER + _digest(archive, selected), 1)
    with (
        recorded_removal(target) as run,
        lease(target.root, "append", target.clock, wait_s=LEASE_WAIT_S),
    ):
        target.store.create()
        keep_settings(target.root, target.config)
        snapshot = target.store.snapshot()
        if is_repeat(target.name, snapshot.counters, identity):
            return Restored(
                target.name, archive.directory, 0, 0, sum(part.messages for part in selected)
            )
        _refuse_used(target, snapshot)
        with _transaction(target, snapshot, run) as transaction:
            nothing = FILE_STATS.empty_table()
            added = stage_copies(target, transaction, archive, selected, nothing, engines)
            ends = _highest(added)
            updates = [*set_next_seqs(ends), *set_open_bases(ends), *set_batches(identity.batches)]
            intent = _intent(target, run, archive, added, ends)
            transaction.commit(intent, _change(added, updates))
        again = _expires_again(target, added, engines)
    return _restored(target, archive, added, run, again, 0)


def _there(opened: OpenedStream, inventory: Inventory) -> list[StoredFile]:
    """The files of a stream."""
    live = inventory.files
    bounds = zip(*(live[name].to_pylist() for name in ("min_seq", "max_seq")), strict=True)
    return [
        StoredFile(replace(file, claim=ExpectedStats()), low, high)
        for file, (low, high) in zip(opened.store.data_files(live), bounds, strict=True)
    ]


def _ends(stream: str, position: Position, selected: Sequence[CopyPart]) -> dict[int, int]:
    """Partition → the next sequence, which is unchanged: the commit requires exactly the version that was read.

    Raises:
        RefusedError: the archive has sequences that the stream never assigned.
    """
    ends = {}
    for partition in {part.copy.partition for part in selected}:
        highest = max(part.copy.max_seq for part in selected if part.copy.partition == partition)
        ends[partition] = position.tail(partition).next_seq
        if highest >= ends[partition]:
            raise RefusedError(
                f"{stream}: the archive holds sequence {highest:,}, which the table has not assigned (its next one is "
                f"{ends[partition]:,}); nothing was changed; restore the messages into a new stream, with --as"
            )
    return ends


@contextmanager
def _transaction(opened: OpenedStream, snapshot: Snapshot, run: str) -> Iterator[RecordedRun]:
    """A recorded run that is not repeated after a lost race.

    Raises:
        BusyError: another commit came first.
    """
    try:
        with recorded_run(opened, snapshot, run) as transaction:
            yield transaction
    except (ConflictError, StalePlanError) as error:
        raise BusyError(
            f"{opened.name}: another writer committed first; nothing was restored; try again"
        ) from error


def _intent(
    opened: OpenedStream, run: str, archive: Archive, added: pa.Table, ends: Mapping[int, int]
) -> RestoredRun:
    messages, size = (pc.sum(added[name]).as_py() for name in ("messages", "bytes"))
    return RestoredRun(
        run=run,
        as_of_ns=opened.clock(),
        source=archive.directory,
        removed_messages=0,
        removed_bytes=0,
        restored_messages=messages,
        restored_bytes=size,
        next_seq=dict(ends),
    )


def _change(added: pa.Table, updates: Sequence[TableUpdate], *compared: RowsCompared) -> Change:
    messages = pc.sum(added["messages"]).as_py()
    return Change(
        add=added,
        ranges=(),
        requirements=compared,
        updates=updates,
        metadata={"messages": messages},
    )


def _expires_again(
    opened: OpenedStream, added: pa.Table, engines: Engines
) -> dict[str, int] | None:
    """Rule → number of the restored messages that a pass would remove now; None: no pass can be planned."""
    try:
        plan = plan_pass(opened, opened.clock(), engines).plan
    except RetentionError:
        return None
    return plan.by_rule_of(added["path"].combine_chunks())


def _restored(
    opened: OpenedStream,
    archive: Archive,
    added: pa.Table,
    run: str,
    again: dict[str, int] | None,
    already: int,
) -> Restored:
    messages, size = (pc.sum(added[name]).as_py() for name in ("messages", "bytes"))
    others = left_out(archive.others)
    return Restored(opened.name, archive.directory, messages, size, already, run, again, others)


def _refuse_used(target: OpenedStream, snapshot: Snapshot) -> None:
    if has_data(target, snapshot):
        raise RefusedError(
            f"{target.name}: was written to before, so messages cannot keep their sequences there; nothing was "
            "changed; name a new one with --as"
        )


def _digest(archive: Archive, selected: Sequence[CopyPart]) -> str:
    """Digest that identifies a restore by its messages, at any location of the archive."""
    digest = hashlib.sha256(f"{archive.origin.stream}/{archive.origin.name}/".encode())
    for part in selected:
        digest.update(f"{part.copy.path}/{part.messages}/".encode())
        digest.update(b"" if part.removed is None else part.removed.tobytes())
    return digest.hexdigest()


def _highest(added: pa.Table) -> dict[int, int]:
    """Partition → the sequence after the last of its added ones."""
    ends = added.group_by("partition").aggregate([("max_seq", "max")])
    rows = zip(ends["partition"].to_pylist(), ends["max_seq_max"].to_pylist(), strict=True)
    return {partition: last + 1 for partition, last in rows}
