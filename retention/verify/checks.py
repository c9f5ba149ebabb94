"""Checks of a stream as a whole: its log, counters, run history, evidence and consumers, each against the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pyarrow.compute as pc

from retention.apply.erasure_run import erasures_of
from retention.apply.replay import missing_records
from retention.apply.undo_records import find_ranges, kept_runs, read_record
from retention.consumers.state import contradictions
from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.context.run_files import RANGES
from retention.core.counters import Counters
from retention.core.run_names import parse_run_name
from retention.core.spoken_commands import command
from retention.core.units import INT64_MAX
from retention.core.wording import counted
from retention.datafile.parquet import read_columns
from retention.errors import RefusedError
from retention.history.kinds import RestoredRun, SequencesRepaired, TableUndone, Undone
from retention.history.record import RunRecord
from retention.history.runs import History, history_of
from retention.inspect.chain import chain_of
from retention.inspect.taken import Taken
from retention.stores.checks import inventory
from retention.stores.checks.duplicates import segments_to_read
from retention.stores.consumer_table import ConsumerTable
from retention.stores.layout import is_ours
from retention.stores.offset_table import OffsetTable
from retention.stores.pauses import PauseRecords
from retention.stores.table_format import Inspection
from retention.verify.erasure_reports import damaged_reports
from retention.verify.finding import Check, Damage, ledger_damages
from retention.verify.removed import removed_sequences
from retention.verify.runs import RecordedRuns

RESTORE_RECORD = "restore it from a copy of the warehouse"


@dataclass(frozen=True)
class StreamToVerify:
    """A stream, its table at one version, and its records, each read once."""

    opened: OpenedStream
    table: Inspection
    sample: float | None = None
    """The share of the files whose content is read; None: all of them."""

    @property
    def history(self) -> History:
        """Its run history."""
        return history_of(self.opened.warehouse, self.opened.name)

    @property
    def outcomes(self) -> list[RunRecord]:
        """The outcomes of its runs, newest first.

        Raises:
            DamagedError: a record is damaged.
        """
        return self._runs.outcomes

    @cached_property
    def _runs(self) -> RecordedRuns:
        return RecordedRuns.of(self.history)

    @cached_property
    def runs_in_log(self) -> dict[int, frozenset[str]]:
        """Version → the runs that its entry of the log names.

        Raises:
            DamagedError: an entry is damaged.
        """
        return self.opened.table_format.committed_runs(self.opened.layout)

    @property
    def is_ours_alone(self) -> bool:
        """Whether no other program wrote a live file, or an entry that the log still has."""
        ours = all(map(is_ours, self.table.files["path"].to_pylist()))
        return ours and all(runs for version, runs in self.runs_in_log.items() if version)

    @cached_property
    def taken(self) -> Taken:
        """The messages that its runs removed."""
        return Taken(self.opened)

    @cached_property
    def standing(self) -> list[RunRecord]:
        """The runs whose removals must still show in the table: committed, not undone, of its present sequences.

        Runs before a restore from an archive, or before a repair of sequences, say nothing about the present files.
        """
        undone = {
            record.undoes
            for record in self._runs.counting
            if isinstance(record, Undone | TableUndone)
        }
        return [
            record
            for record in self.outcomes
            if record.is_done and record.run > self.renewal and record.run not in undone
            if record.epoch == self.table.counters.epoch and not record.purges
        ]

    @cached_property
    def renewal(self) -> str:
        """The last restore from an archive or repair of sequences; empty: there was none."""
        return max(
            (
                record.run
                for record in self._runs.counting
                if isinstance(record, RestoredRun | SequencesRepaired)
            ),
            default="",
        )

    @cached_property
    def removed(self) -> dict[int, np.ndarray]:
        """Partition → the sequences that no live file may have, because runs removed them; ranges, shape (n, 2)."""
        return removed_sequences(self.taken, self.standing, self.renewal)


def check_log(stream: StreamToVerify) -> Iterator[Damage]:
    """Every entry of the log can be read, none is missing in between, and each run of ours has its record."""
    versions = sorted(stream.runs_in_log)
    gaps = [after for before, after in itertools.pairwise(versions) if after > before + 1]
    for version in gaps:
        yield Damage(
            "log",
            f"{stream.opened.name}, version {version - 1}",
            f"the log has entries before and after version {version - 1}, and not this one",
            "restore the entry from a copy",
        )


def check_duplicates(stream: StreamToVerify) -> Iterator[Damage]:
    """No sequence is in two files, and every file lies within the bounds of its segment."""
    described = stream.table.described
    overlapping = inventory.refuse_overlaps(stream.opened.name, inventory.in_order(described))
    for segment in segments_to_read(overlapping):
        located = stream.opened.store.data_files(segment)
        seqs = np.sort(
            np.concatenate([read_columns(file, ["seq"])[0]["seq"].to_numpy() for file in located])
        )
        twice = np.flatnonzero(seqs[1:] == seqs[:-1])
        if len(twice):
            repairs = ", or ".join(
                command("repair lost", stream.opened.name, file.path, options="--yes")
                for file in located
            )
            yield Damage(
                "sequences",
                f"{stream.opened.name}, segment {located[0].segment}",
                f"sequence {seqs[twice[0]]} is in two files",
                f"take the wrong file out of the table: {repairs}",
            )


def check_counters(stream: StreamToVerify) -> Iterator[Damage]:
    """The counters of the log are above every file's sequences and segment, and not below those of runs.

    Programs that append rows with sequences of their own raise no counter: their streams have nothing to compare.
    """
    if not stream.is_ours_alone:
        return
    name, counters = stream.opened.name, stream.table.counters
    proven = inventory.effective(Counters(), stream.table.described)
    recorded = stream.history.next_seqs(counters.epoch)
    for partition, next_seq in sorted(counters.next_seq.items()):
        needed = max(proven.next_seq.get(partition, 0), recorded.get(partition, 0))
        if next_seq < needed:
            yield _low(
                f"{name}, partition {partition}",
                f"the log would assign sequence {next_seq} next, and {needed - 1} was assigned",
            )
    for partition, base in sorted(counters.open_base.items()):
        highest = proven.open_base.get(partition, 0)
        if base < highest:
            yield _low(
                f"{name}, partition {partition}",
                f"the log says that segment {base} is open, and a file is in segment {highest}",
            )


def _low(where: str, detail: str) -> Damage:
    return Damage(
        "counters",
        where,
        detail,
        "restore the table's log from a copy; until then, files and run history keep sequences from being assigned "
        "twice",
    )


def check_history(stream: StreamToVerify) -> Iterator[Damage]:
    """Each run that an entry of the log names has a record, and each recorded commit is in the log."""
    history, log = stream.history, stream.runs_in_log
    records = {record.run: record for record in stream.outcomes}
    begun = set(history.unfinished())
    for version, runs in sorted(log.items()):
        for run in sorted(runs):
            started = parse_run_name(run) is not None
            if (
                started
                and run not in records
                and run not in begun
                and not _is_forgotten(stream, run)
            ):
                yield Damage(
                    "history",
                    history.done_location(run),
                    f"the log says that run {run} committed version {version}, and there is no record of it",
                    RESTORE_RECORD,
                )
    for record in records.values():
        yield from _of_commit(stream, record)


def _of_commit(stream: StreamToVerify, record: RunRecord) -> Iterator[Damage]:
    version, log = record.version_after, stream.runs_in_log
    if not record.is_done or version is None or record.version_before == version:
        return
    intent = stream.history.begun(record.run)
    of_table = intent is not None and intent.basis is not None
    if not of_table or intent.basis.table_id != stream.table.table_id:  # type: ignore[union-attr]
        return
    place = stream.history.done_location(record.run)
    if version > stream.table.version:
        yield Damage(
            "history",
            place,
            f"the record says that the run committed version {version}, and the log ends at {stream.table.version}",
            "restore the newer table from a copy",
        )
    elif version in log and record.run not in log[version] and not _committed(log, record.run):
        yield Damage(
            "history",
            place,
            f"the record says that the run committed version {version}, and no entry of the log names the run",
            f"restore the record, or the log, from a copy; {command('history show', record.run)} has what it says",
        )


def _committed(log: dict[int, frozenset[str]], run: str) -> bool:
    return any(run in runs for runs in log.values())


def _is_forgotten(stream: StreamToVerify, run: str) -> bool:
    """Whether a run is older than the oldest record: the configured `history` deletes records."""
    oldest = min((record.run for record in stream.outcomes), default=None)
    return stream.opened.config.history < INT64_MAX and (oldest is None or run < oldest)


def check_evidence(stream: StreamToVerify) -> Iterator[Damage]:
    """Each recorded removal has its evidence, with as many messages as its record says; all records can be read."""
    for run, names in kept_runs(stream.opened).items():
        for name in names:
            (find_ranges if name == RANGES else partial(read_record, name=name))(stream.opened, run)
    for record in stream.outcomes:
        if not (record.is_done and record.removed_messages and record.names_initiator):
            continue
        place = stream.history.done_location(record.run)
        taken = stream.taken.of_run(record.run)
        if taken is None:
            yield Damage(
                "evidence",
                place,
                f"the record says that the run removed {counted(record.removed_messages, 'message')}, and there is no "
                "evidence of which",
                "restore `_retention/reports` of the stream and `runs/*/evidence` from a copy of the warehouse",
            )
        elif taken.is_exact:
            messages = sum(pc.sum(rows["messages"], min_count=0).as_py() for rows in taken.tables())
            if messages != record.removed_messages:
                yield Damage(
                    "evidence",
                    place,
                    f"the record says that the run removed {counted(record.removed_messages, 'message')}, and its "
                    f"evidence has {messages:,}",
                    RESTORE_RECORD,
                )


def check_removed_files(stream: StreamToVerify) -> Iterator[Damage]:
    """No file is live that a run took out of the table and nothing restored."""
    paths = stream.table.files["path"].combine_chunks()
    locations = dict(zip(paths.to_pylist(), stream.table.locations, strict=True))
    for record in stream.standing:
        try:
            removed = read_record(stream.opened, record.run, "removed")
        except RefusedError:
            # Reclaim deletes the record with the files.
            continue
        live = removed["path"].filter(pc.is_in(removed["path"], value_set=paths)).to_pylist()
        for path in live:
            yield Damage(
                "history",
                locations[path],
                f"the run history says that run {record.run} took this file out of the table, and the log has it",
                "restore the table's log from a copy",
            )


def check_consumers(stream: StreamToVerify) -> Iterator[Damage]:
    """The records of consumers can be read, agree with themselves, and end where the stream does."""
    opened, counters = stream.opened, stream.table.counters
    if opened.config.topic is not None:
        yield from _of_offsets(stream)
        return
    table = ConsumerTable(opened.root, counters.generation)
    table.refuse_lost(counters)
    last_seq = inventory.effective(counters, stream.table.described).next_seq.get(0, 1) - 1
    for record in table.live(counters):
        for fault in contradictions(record.state, last_seq):
            yield Damage(
                "consumers",
                f"{opened.name}, consumer {record.consumer}",
                fault,
                "restore the directory `consumers` of the stream from a copy, or delete the consumer and add it again",
            )


def _of_offsets(stream: StreamToVerify) -> Iterator[Damage]:
    """Readers of a topic beyond the end of their partition; an import takes over offsets as a server had them."""
    opened, counters = stream.opened, stream.table.counters
    offsets = OffsetTable(opened.root).live(counters)
    ends = inventory.effective(counters, stream.table.described).next_seq
    for reader, stored in sorted(offsets.of.items()):
        end = ends.get(reader.partition, 0)
        if offsets.origin is None and stored.offset >= end:
            read = (str(reader.partition), reader.name, "OFFSET")
            yield Damage(
                "consumers",
                f"{opened.name}, {reader.kind} {reader.name} in partition {reader.partition}",
                f"its stored offset is {stored.offset:,}, and the partition ends before {end:,}",
                "restore the directory `offsets` of the topic from a copy, or store the offset again: "
                + command("offset store", opened.name, *read, options=f"--kind {reader.kind}"),
            )


def check_pauses(stream: StreamToVerify) -> Iterator[Damage]:
    """The records of pauses can be read."""
    PauseRecords(stream.opened.warehouse).current()
    PauseRecords(stream.opened.root, stream.opened.name).current()
    yield from ()


def check_chain(stream: StreamToVerify) -> Iterator[Damage]:
    """The records of runs are linked one to the next, and the log has the link of the last one (decision 0075)."""
    for finding in chain_of(stream.opened).findings:
        yield Damage("chain", stream.history.directory, finding, RESTORE_RECORD)


def check_holds(stream: StreamToVerify) -> Iterator[Damage]:
    """Each legal hold that the log counts has an intact record."""
    holds_in_effect(stream.opened, stream.table.counters)
    yield from ()


def check_ledger(stream: StreamToVerify) -> Iterator[Damage]:
    """The warehouse has every legal hold and erasure that the ledger has."""
    opened = stream.opened
    yield from ledger_damages(opened.ledger, opened.name, partial(missing_records, opened))


def check_erasures(stream: StreamToVerify) -> Iterator[Damage]:
    """Each erasure that ended has an intact report."""
    yield from damaged_reports(erasures_of(stream.opened))


STREAM_CHECKS: list[tuple[str, Check[StreamToVerify]]] = [
    ("log", check_log),
    ("sequences", check_duplicates),
    ("counters", check_counters),
    ("history", check_history),
    ("evidence", check_evidence),
    ("history", check_removed_files),
    ("chain", check_chain),
    ("holds", check_holds),
    ("consumers", check_consumers),
    ("pauses", check_pauses),
    ("ledger", check_ledger),
    ("erasures", check_erasures),
]
"""The checks of a stream without the content of its files; records of another kind get a function here."""
