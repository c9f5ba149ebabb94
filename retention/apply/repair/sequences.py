"""Repair of sequences: rows with impossible numbers are removed, and sequences continue from the possible ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.change import Change
from retention.apply.recorded_run import RecordedRun, recorded_run
from retention.apply.recover import settle_interrupted
from retention.apply.repair.readers import take_back
from retention.context.context import OpenedStream
from retention.context.holds import refuse_held
from retention.context.maintenance import maintaining
from retention.core.counters import Counters
from retention.core.display import Displayed
from retention.core.inventory import DataFile
from retention.core.json_object import JsonObject
from retention.core.table_updates import (
    TableUpdate,
    set_batches,
    set_epoch,
    set_next_seqs,
    set_open_bases,
)
from retention.datafile.parquet import read_columns, stats_table
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.datafile.segment_writer import PARTITION
from retention.errors import BusyError, ConflictError, StalePlanError
from retention.history.kinds import SequencesRepaired
from retention.history.runs import History, history_of
from retention.plan.run_ranges import ranges_of_files
from retention.ports import Snapshot
from retention.schemas.bounds import MAX_SEQ, MAX_SIZE
from retention.schemas.files import FILE_STATS
from retention.stores.checks import duplicates, inventory
from retention.stores.checks.number_bounds import impossible_counters
from retention.stores.consumer_table import ConsumerTable
from retention.stores.lease import lease

ATTEMPTS = 20
LEASE_WAIT_S = 60.0


@dataclass(frozen=True)
class UnsoundFile:
    """A file of the table with impossible numbers."""

    path: str
    messages: int
    """The number of its rows to remove."""
    bytes: int
    """The sizes of the rows to remove, as far as these sizes are possible."""
    kept: int
    """The number of its rows to keep, in a file that replaces it."""
    seqs: tuple[int, int] | None
    """The lowest and the highest sequence to remove; None: only its statistics are wrong."""
    is_beyond: bool
    """Whether some sequences are impossible."""


@dataclass(frozen=True, repr=False)
class SequenceRepair(Displayed):
    """A repair of sequences, done or planned."""

    stream: str
    files: tuple[UnsoundFile, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    """Impossible counters by name; they no longer count after the repair."""
    next_seq: Mapping[int, int] = field(default_factory=dict)
    """Partition → the next sequence after the repair."""
    consumers: tuple[str, ...] = ()
    """The consumers that were beyond the stream's end, and are moved back to it."""
    run: str | None = None
    """None: nothing was done."""
    version: int | None = None
    """The table's version after the repair."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.files or self.counters)

    @property
    def begins_epoch(self) -> bool:
        """Whether the repair begins a new epoch of sequences; not if only sizes are impossible."""
        return bool(self.counters) or any(file.is_beyond for file in self.files)

    @property
    def messages(self) -> int:
        """The number of rows to remove."""
        return sum(file.messages for file in self.files)

    @property
    def bytes(self) -> int:
        """The sizes of the rows to remove, as far as these sizes are possible."""
        return sum(file.bytes for file in self.files)

    def as_json(self) -> JsonObject:
        """The repair as JSON values."""
        return {
            "stream": self.stream,
            "kind": "repair",
            "repair": "sequences",
            "needed": self.is_needed,
            "removed_messages": self.messages,
            "removed_bytes": self.bytes,
            "files": [vars(file) for file in self.files],
            "counters": dict(self.counters),
            "begins_epoch": self.begins_epoch,
            "next_seq": {str(partition): seq for partition, seq in self.next_seq.items()},
            "consumers": list(self.consumers),
            "run": self.run,
            "version_after": self.version,
        }


@dataclass(frozen=True)
class _Examined:
    """An unsound file, and its rows to remove."""

    file: DataFile
    impossible: UnsoundFile
    gone: np.ndarray
    """The sequences of the rows to remove, as ascending ranges, shape (n, 2)."""
    next_seq: Mapping[int, int]
    """Partition → the sequence after the highest kept row; empty if no row is kept."""
    stats: Mapping[str, int]
    """The file's statistics for the run's record, as far as they are known."""


@dataclass(frozen=True)
class _Diagnosis:
    """The present state of a stream, and its repair."""

    snapshot: Snapshot
    counters: Counters
    """The counters in the log."""
    sound: pa.Table
    """Shape `FILE_STATS`."""
    unsound: pa.Table
    """Shape `LOGGED_FILES`."""
    examined: tuple[_Examined, ...]
    repair: SequenceRepair


def find_impossible_sequences(opened: OpenedStream) -> SequenceRepair:
    """Find the effect of `repair_impossible_sequences`; nothing is changed.

    Raises:
        ForeignRowsError: rows of other writers break another storage rule.
        DamagedError: the table cannot be read.
    """
    if not opened.table.exists():
        return SequenceRepair(opened.name)
    return _diagnose(opened, history_of(opened.warehouse, opened.name)).repair


def repair_impossible_sequences(opened: OpenedStream) -> SequenceRepair:
    """Remove rows with impossible sequences or sizes from a stream, and continue sequences after the kept rows.

    Kept rows keep their sequences. If there were impossible sequences or counters, a new epoch of counters begins after
    the highest possible sequence in any message, the log or the run history. Removed files remain on disk for the grace
    period. The repair is a recorded run; it cannot be undone.

    Raises:
        BusyError: another run is in progress, or other writers kept committing first.
        ForeignRowsError: rows of other writers break another storage rule; nothing was changed.
        DamagedError: the table cannot be read.
    """
    history = history_of(opened.warehouse, opened.name)
    if not opened.table.exists():
        return SequenceRepair(opened.name)
    with ExitStack() as held:
        held.enter_context(maintaining(opened, at_least_s=LEASE_WAIT_S))
        held.enter_context(lease(opened.root, "append", opened.clock, wait_s=LEASE_WAIT_S))
        settle_interrupted(opened, history)
        for _ in range(ATTEMPTS):
            diagnosis = _diagnose(opened, history)
            if not diagnosis.repair.is_needed:
                return diagnosis.repair
            with suppress(ConflictError, StalePlanError):
                return _carry_out(opened, history, diagnosis)
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times another commit came first; nothing was changed; pause the other writers, "
        "then try again"
    )


def _diagnose(opened: OpenedStream, history: History) -> _Diagnosis:
    store = opened.store
    snapshot = store.snapshot()
    sound, unsound = store.partition_valid_files(snapshot)
    examined = tuple(_examine(opened, file) for file in store.data_files(unsound))
    counters = store.logged_counters(snapshot)
    counted = [
        counters.next_seq,
        store.last_counted(snapshot),
        history.possible_next_seqs(counters.epoch, MAX_SEQ + 1),
        inventory.effective(Counters(), sound).next_seq,
        *(result.next_seq for result in examined),
        *({PARTITION: reach + 1} for _, reach in _reaches(opened, counters)),
    ]
    repair = SequenceRepair(
        opened.name,
        tuple(result.impossible for result in examined),
        _impossible(counters, history),
        _next_seq(opened, counted),
    )
    if repair.begins_epoch:
        ahead = (name for name, reach in _reaches(opened, counters) if reach > MAX_SEQ)
        repair = replace(repair, consumers=tuple(ahead))
    return _Diagnosis(snapshot, counters, sound, unsound, examined, repair)


def _examine(opened: OpenedStream, file: DataFile) -> _Examined:
    """Find the rows of a file with impossible numbers: all rows, if its segment's number is impossible."""
    rows, _ = read_columns(file, ("seq", "size"))
    seqs, sizes = (pc.fill_null(rows[name], -1).to_numpy() for name in ("seq", "size"))
    is_size = (sizes >= 0) & (sizes <= MAX_SIZE)
    is_seq = (seqs >= opened.config.lowest_seq) & (seqs <= MAX_SEQ)
    is_seq &= 0 <= file.segment <= MAX_SEQ
    stays = is_seq & is_size
    gone, kept = np.unique(seqs[~stays]), seqs[stays]
    unsound = UnsoundFile(
        path=file.path,
        messages=int((~stays).sum()),
        bytes=sum(sizes[~stays & is_size].tolist()),
        kept=len(kept),
        seqs=(int(gone[0]), int(gone[-1])) if len(gone) else None,
        is_beyond=not is_seq.all(),
    )
    next_seq = {file.partition: int(kept.max()) + 1} if len(kept) else {}
    stats = {"messages": len(seqs), "min_seq": int(seqs.min()), "max_seq": int(seqs.max())}
    return _Examined(file, unsound, np.stack([gone, gone], axis=1), next_seq, stats)


def _impossible(counters: Counters, history: History) -> dict[str, int]:
    """Impossible counters of the log and of the run history, by name."""
    named = dict(impossible_counters(counters))
    floors = history.next_seqs(counters.epoch)
    named["next sequence in the run history"] = {
        partition: seq for partition, seq in floors.items() if seq > MAX_SEQ + 1
    }
    return {
        f"{name} of partition {partition}": value
        for name, values in named.items()
        for partition, value in values.items()
    }


def _next_seq(opened: OpenedStream, counted: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Partition → the highest of its next sequences that can be assigned."""
    first = opened.config.first_seq or opened.config.lowest_seq
    partitions = {
        *range(opened.config.partitions),
        *(partition for values in counted for partition in values),
    }
    return {
        partition: max(
            seq
            for seq in (first, *(values.get(partition, first) for values in counted))
            if seq <= MAX_SEQ + 1
        )
        for partition in sorted(partitions)
    }


def _reaches(opened: OpenedStream, counters: Counters) -> Iterator[tuple[str, int]]:
    """The consumers of a stream, and the last sequence delivered to each."""
    for record in ConsumerTable(opened.root).live(counters):
        yield record.consumer, record.state.delivered.stream_seq


def _carry_out(opened: OpenedStream, history: History, diagnosis: _Diagnosis) -> SequenceRepair:
    refuse_held(opened, diagnosis.snapshot.counters, "this repair")
    with recorded_run(opened, diagnosis.snapshot) as run:
        added = _copies(opened, run, diagnosis)
        return _commit(opened, history, run, diagnosis, added)


def _copies(opened: OpenedStream, run: RecordedRun, diagnosis: _Diagnosis) -> pa.Table:
    """Stage the files without the rows to remove, shape `FILE_STATS`."""
    copies = []
    for result in diagnosis.examined:
        if result.impossible.kept:
            target = run.stage_copy(result.file)
            copies += copy_remaining(RewriteTask(result.file, (target,), result.gone)).stats
    added = stats_table(copies)
    _refuse_broken(opened, pa.concat_tables([diagnosis.sound, added]))
    return added


def _refuse_broken(opened: OpenedStream, files: pa.Table) -> None:
    """Check the kept files against the rules of segments."""
    overlapping = inventory.refuse_overlaps(opened.name, inventory.in_order(files))
    duplicates.refuse_duplicates(opened.layout, overlapping, opened.store.data_files)


def _commit(
    opened: OpenedStream,
    history: History,
    run: RecordedRun,
    diagnosis: _Diagnosis,
    added: pa.Table,
) -> SequenceRepair:
    here, repair = diagnosis.counters.epoch, diagnosis.repair
    epoch = (
        max(diagnosis.snapshot.version, history.last_epoch()) + 1 if repair.begins_epoch else here
    )
    if epoch != here:
        take_back(opened, repair.consumers, repair.next_seq, (here, epoch))
    counting = _counting_on(diagnosis, added) if repair.begins_epoch else []
    removed = diagnosis.counters.removed
    change = Change(
        remove=_recorded(diagnosis),
        add=added,
        ranges=[_ranges(diagnosis)],
        stepped_over={part: seq for part, seq in removed.items() if seq <= MAX_SEQ},
        updates=[*set_epoch(here, epoch), *counting],
        metadata={"repair": "sequences"},
    )
    outcome = run.commit(_record(opened, diagnosis, run.name, epoch), change)
    return replace(repair, run=run.name, version=outcome.version_after)


def _record(opened: OpenedStream, diagnosis: _Diagnosis, run: str, epoch: int) -> SequencesRepaired:
    here, repair = diagnosis.counters.epoch, diagnosis.repair
    return SequencesRepaired(
        run=run,
        as_of_ns=opened.clock(),
        removed_messages=repair.messages,
        removed_bytes=repair.bytes,
        by_rule={},
        needed=repair.is_needed,
        files=[vars(file) for file in repair.files],
        counters=dict(repair.counters),
        begins_epoch=repair.begins_epoch,
        next_seq=dict(repair.next_seq),
        consumers=list(repair.consumers),
        epoch=epoch,
        ends_epoch=here if epoch != here else None,
    )


def _counting_on(diagnosis: _Diagnosis, added: pa.Table) -> list[TableUpdate]:
    """All counters for the epoch that the repair begins: writers' batch numbers continue, as messages do."""
    bases = inventory.effective(Counters(), pa.concat_tables([diagnosis.sound, added])).open_base
    logged = {
        part: base for part, base in diagnosis.counters.open_base.items() if base <= MAX_SEQ + 1
    }
    open_base = {
        part: max(bases.get(part, 0), logged.get(part, 0)) for part in sorted({*bases, *logged})
    }
    return [
        *set_next_seqs(diagnosis.repair.next_seq),
        *set_open_bases(open_base),
        *set_batches(diagnosis.counters.batches),
    ]


def _recorded(diagnosis: _Diagnosis) -> pa.Table:
    """The files to remove, shape `FILE_STATS`; statistics made unknown by their rows are 0."""
    files = diagnosis.unsound.to_pylist()
    unknown = {field.name: 0 for field in FILE_STATS if not field.nullable}
    rows = [
        {**unknown, **file, "in_time_order": False, **result.stats}
        for file, result in zip(files, diagnosis.examined, strict=True)
    ]
    return stats_table(rows)


def _ranges(diagnosis: _Diagnosis) -> pa.Table:
    """The sequences to remove, by no rule, shape `RUN_RANGES`; numbers below 0 are not sequences."""
    lost = {result.file.path: result.gone[result.gone[:, 0] >= 0] for result in diagnosis.examined}
    return ranges_of_files(_recorded(diagnosis), lost)
