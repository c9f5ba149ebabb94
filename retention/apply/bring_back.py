"""Restoring the messages that a run removed as new files, where other runs have rewritten its files since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.foreign_changes import UndoCheck, files_lost
from retention.context.context import OpenedStream
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.labels import labelled
from retention.core.seq_ranges import complement_of_ranges, difference_of_ranges, in_ranges
from retention.core.spans import Array
from retention.core.table_requirements import AssertSegmentOrder, RowsCompared, TableRequirement
from retention.core.wording import counted
from retention.datafile.parquet import read_columns, stats_table
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.engines.select import Engines
from retention.errors import RefusedError, VerificationError
from retention.layout.segment_homes import Placing
from retention.plan.run_ranges import ranges_of_files, sequences_of
from retention.storage import files
from retention.stores.checks import inventory


@dataclass(frozen=True)
class TakenOfFile:
    """The messages that a run removed from one file."""

    path: str
    partition: int
    segment: int
    """The file's segment when the run removed them."""
    messages: int
    ranges: Array
    """The sequences to restore, as ascending ranges, both ends inclusive; shape (n, 2)."""

    @property
    def others(self) -> Array:
        """Ranges of all other sequences that a message can have; shape (n, 2)."""
        return complement_of_ranges(self.ranges)


@dataclass(frozen=True)
class Findings:
    """The facts needed before removed messages are written anew."""

    live: pa.Table
    """The files of the table, shape `FILE_STATS`."""
    taken: Sequence[TakenOfFile]
    sources: Sequence[DataFile]
    """The files that held the messages, each at its present location."""
    compared: pa.Array
    """Paths of live files whose rows were compared with the rows to restore, because their ranges overlap."""
    marked: Sequence[TakenOfFile]
    """The live files with delete markers of the run, and the number of other messages in each."""


@dataclass(frozen=True)
class ComingBack:
    """Files that restore removed messages to a table, and the conditions of their commit."""

    added: pa.Table
    """The files to add, shape `FILE_STATS`."""
    removed: pa.Table
    """The files to remove, shape `FILE_STATS`."""
    markers: pa.Table
    """The delete markers of the run that the undo removes, shape `RUN_RANGES`; no rule removes them."""
    requirements: Sequence[TableRequirement]
    """All other conditions of the commit."""
    is_rewritten: bool = False
    """Whether messages are restored one by one or in new files; False: the files that the run removed are restored."""


def find_removed(undoing: UndoCheck, ranges: Iterable[pa.Table], there: RefusedError) -> Findings:
    """Find the files that held what a run removed, and verify that no removed message is in the table.

    Args:
        undoing: the run, and the current table.
        ranges: the messages that it removed, some rows at a time; shape `RUN_RANGES`.
        there: the error to raise if the table has one of them.

    Raises:
        RefusedError: the table has one of them.
        VerificationError: a file that held one is gone.
    """
    live = undoing.opened.store.inventory(undoing.snapshot).files
    taken = list(taken_of_files(ranges))
    sources = _sources(undoing, taken)
    compared = _compared(undoing, live, taken, sources)
    if compared is None:
        raise there
    return Findings(live, taken, sources, compared, list(_marked(undoing, live)))


def bring_back(undoing: UndoCheck, findings: Findings, engines: Engines) -> ComingBack:
    """Stage exactly the messages that a run removed, each once, in their present segments.

    Raises:
        VerificationError: a source file has changed; nothing was committed.
    """
    opened, live = undoing.opened, findings.live
    taken = list(zip(findings.taken, findings.sources, strict=True))
    copies = [
        *(
            _Copy(RewriteTask(source, (target,), part.others), part.messages)
            for part, source, target in _placed(opened, live, taken)
        ),
        *(_without_markers(opened, live, file) for file in findings.marked if file.messages),
    ]
    goes = pc.is_in(live["path"], pa.array([file.path for file in findings.marked], pa.string()))
    added = _staged(opened, copies, live.filter(pc.invert(goes)), engines)
    markers = ranges_of_files(
        live.filter(goes),
        {file.path: file.ranges for file in findings.marked if file.messages},
        [],
    )
    requirements: list[TableRequirement] = [
        AssertSegmentOrder(added),
        RowsCompared(findings.compared),
    ]
    return ComingBack(added, live.filter(goes), markers, requirements, is_rewritten=True)


@dataclass(frozen=True)
class _Copy:
    """A copy to be made, and the messages that it must contain."""

    task: RewriteTask
    messages: int


@labelled(step="bring rows back")
def _staged(
    opened: OpenedStream, copies: Sequence[_Copy], stays: pa.Table, engines: Engines
) -> pa.Table:
    """Make the copies, shape `FILE_STATS`; on any failure all of them are deleted."""
    weights = [
        length or 0 for length in files.lengths([copy.task.source.location for copy in copies])
    ]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    try:
        written = engine.map(copy_remaining, [copy.task for copy in copies], weights)
        for copy, result in zip(copies, written, strict=True):
            _check_count(opened, copy, result.total("messages"))
        added = stats_table([row for result in written for row in result.stats])
        together = inventory.in_order(pa.concat_tables([stays, added.cast(stays.schema)]))
        inventory.refuse_overlaps(opened.name, together)
    except BaseException:
        opened.store.discard([target.path for copy in copies for target in copy.task.targets])
        raise
    return added


def taken_of_files(ranges: Iterable[pa.Table]) -> Iterator[TakenOfFile]:
    """The messages that a run removed from each file, from `RUN_RANGES` rows that arrive in batches."""
    stretches: dict[str, list[TakenOfFile]] = {}
    for table in ranges:
        for rows in _by_path(table):
            of_file = rows.select(["path", "partition", "segment"]).slice(0, 1).to_pylist()[0]
            taken = TakenOfFile(
                **of_file, messages=pc.sum(rows["messages"]).as_py(), ranges=sequences_of(rows)
            )
            stretches.setdefault(taken.path, []).append(taken)
    for path in sorted(stretches):
        together = stretches.pop(path)
        several = np.concatenate([taken.ranges for taken in together])
        yield replace(
            together[0],
            messages=sum(taken.messages for taken in together),
            # Ranges in rows of their own may fall between the ranges of another row.
            ranges=several[np.argsort(several[:, 0], kind="stable")],
        )


def _by_path(rows: pa.Table) -> Iterator[pa.Table]:
    """Runs of adjacent rows with one path."""
    encoded = rows["path"].combine_chunks().dictionary_encode()
    starts = np.flatnonzero(np.diff(encoded.indices.to_numpy(), prepend=-1))
    for start, end in pairwise([*starts.tolist(), rows.num_rows]):
        yield rows.slice(start, end - start)


def _placed(
    opened: OpenedStream, live: pa.Table, taken: Sequence[tuple[TakenOfFile, DataFile]]
) -> Iterator[tuple[TakenOfFile, DataFile, DataFile]]:
    """The messages to restore from each file, by their present segment, with the file that receives them."""
    placing = Placing.of(
        live,
        [(part.partition, part.segment, int(part.ranges[-1, 1])) for part, _ in taken],
    )
    for (part, source), home, several in zip(taken, placing.homes, placing.divided, strict=True):
        pieces = _pieces(placing, part, source, home) if several else [(part, home)]
        for piece, base in pieces:
            yield piece, source, opened.store.stage(part.partition, base)[0]


def _pieces(
    placing: Placing, part: TakenOfFile, source: DataFile, home: int
) -> Iterator[tuple[TakenOfFile, int]]:
    """The messages of a file by the segment to which they belong; segments without messages are omitted."""
    seqs = _seqs(source)
    comes = seqs[in_ranges(seqs, part.ranges)]
    for base, others, messages in placing.shares(part.partition, home, comes):
        ranges = difference_of_ranges(part.ranges, others)
        yield replace(part, messages=messages, ranges=ranges), base


def _sources(undoing: UndoCheck, taken: Sequence[TakenOfFile]) -> list[DataFile]:
    """The files that held the messages, at their present locations.

    Raises:
        VerificationError: some are gone.
    """
    places = undoing.places_of([of_file.path for of_file in taken])
    if None in places:
        raise files_lost(undoing, places.count(None), len(places))
    return [
        DataFile(of_file.path, of_file.partition, of_file.segment, str(place), "")
        for of_file, place in zip(taken, places, strict=True)
    ]


def _compared(
    undoing: UndoCheck, live: pa.Table, taken: Sequence[TakenOfFile], sources: Sequence[DataFile]
) -> pa.Array | None:
    """Paths of the files whose ranges overlap the rows to restore; None: a file already has one of the messages."""
    compared: set[str] = set()
    for of_file, source in zip(taken, sources, strict=True):
        first, last = int(of_file.ranges[0, 0]), int(of_file.ranges[-1, 1])
        there = _within(live, of_file.partition, first, last)
        if not there.num_rows:
            continue
        seqs = _seqs(source)
        comes = seqs[in_ranges(seqs, of_file.ranges)]
        for file in undoing.opened.store.data_files(there):
            if np.isin(comes, _seqs(file)).any():
                return None
        compared.update(there["path"].to_pylist())
    return pa.array(sorted(compared), pa.string())


def _seqs(file: DataFile) -> Array:
    seqs: Array = read_columns(file, ("seq",))[0]["seq"].to_numpy()
    return seqs


def _check_count(opened: OpenedStream, copy: _Copy, messages: int) -> None:
    if messages != copy.messages:
        raise VerificationError(
            f"{opened.name}: {copy.task.source.location} has {messages:,} of {counted(copy.messages, 'message')} "
            "to copy: the file was changed; nothing was changed by this run; restore messages from an archive or a "
            "backup"
        )


def _marked(undoing: UndoCheck, live: pa.Table) -> Iterator[TakenOfFile]:
    """The live files with delete markers of the run, and the number of other messages in each.

    Raises:
        VerificationError: a file with markers was merged and is gone, so the markers are unknown.
    """
    for row in undoing.markers.to_pylist():
        here = live.filter(pc.equal(live["path"], row["path"]))
        if here.num_rows:
            yield TakenOfFile(row["path"], row["partition"], row["segment"], 0, NO_RANGES)
            continue
        [place] = undoing.places_of([row["path"]])
        if place is None:
            raise files_lost(undoing, 1, undoing.markers.num_rows)
        seqs = _seqs(DataFile(row["path"], row["partition"], row["segment"], place, ""))
        for file, stats in _meeting_files(undoing.opened, live, row["partition"], seqs):
            markers = seqs[np.isin(seqs, _seqs(file))]
            if len(markers):
                ranges = np.stack([markers, markers], axis=1)
                left = stats["messages"] - len(markers)
                yield TakenOfFile(file.path, file.partition, file.segment, left, ranges)


def _meeting_files(
    opened: OpenedStream, live: pa.Table, partition: int, seqs: Array
) -> Iterator[tuple[DataFile, dict[str, Any]]]:
    """The live files whose ranges overlap some ascending sequences, with their statistics."""
    there = _within(live, partition, int(seqs[0]), int(seqs[-1]))
    yield from zip(opened.store.data_files(there), there.to_pylist(), strict=True)


def _within(live: pa.Table, partition: int, first: int, last: int) -> pa.Table:
    meets = pc.and_(pc.less_equal(live["min_seq"], last), pc.greater_equal(live["max_seq"], first))
    return live.filter(pc.and_(pc.equal(live["partition"], partition), meets))


def _without_markers(opened: OpenedStream, live: pa.Table, marked: TakenOfFile) -> _Copy:
    [source] = opened.store.data_files(live.filter(pc.equal(live["path"], marked.path)))
    return _Copy(
        RewriteTask(source, (opened.store.stage_copy(source),), marked.ranges), marked.messages
    )
