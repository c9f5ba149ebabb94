"""Sources of an undo: the removed files unchanged, or their removed rows in new files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.change import Change
from retention.apply.recorded_run import RecordedRun
from retention.apply.undo_conflicts import describe_change, files_lost
from retention.apply.undo_files import RunToUndo, seqs_of
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.labels import labelled
from retention.core.seq_ranges import complement_of_ranges, difference_of_ranges, in_ranges
from retention.core.spans import Array
from retention.core.table_requirements import AssertSegmentOrder, RowsCompared
from retention.core.wording import counted
from retention.datafile.parquet import stats_table
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.engines.select import Engines
from retention.errors import ForeignRowsError, RefusedError, VerificationError
from retention.layout.segment_assignment import SegmentAssignment
from retention.plan.run_ranges import ranges_of_files, sequences_of
from retention.storage import files
from retention.stores.checks import duplicates, inventory


@dataclass(frozen=True)
class RemovedRows:
    """The messages that a run removed from one file."""

    file: DataFile
    """The file, at its present location; its segment when the run removed them."""
    messages: int
    ranges: Array
    """The sequences to restore, as ascending ranges, both ends inclusive; shape (n, 2)."""

    @property
    def others(self) -> Array:
        """Ranges of all other sequences that a message can have; shape (n, 2)."""
        return complement_of_ranges(self.ranges)

    def seqs(self) -> Array:
        """The sequences of the messages, read from the file."""
        seqs = seqs_of(self.file)
        return seqs[in_ranges(seqs, self.ranges)]


@dataclass(frozen=True)
class MarkedFile:
    """A file of the table with delete markers of the run."""

    file: DataFile
    markers: Array
    """The sequences of the markers, as ranges, shape (n, 2); empty if the file has nothing else."""
    others: int
    """The number of other messages in the file."""


@dataclass(frozen=True)
class UnchangedFiles:
    """The removed files, which replace the copies of the run."""

    change: Change
    is_rewritten: ClassVar = False

    @property
    def files(self) -> int:
        """The number of removed files."""
        return self.change.add.num_rows

    def stage(self, run: RecordedRun, engines: Engines) -> Change:
        """The change; there is nothing to write."""
        return self.change


@dataclass(frozen=True)
class RowsOfFiles:
    """The removed messages, written anew into their present segments, each once."""

    undo: RunToUndo
    rows: Sequence[RemovedRows]
    compared: pa.Array
    """Paths of live files whose rows were compared with the rows to restore, because their ranges overlap."""
    marked: Sequence[MarkedFile]
    is_rewritten: ClassVar = True

    @property
    def files(self) -> int:
        """The number of files that held the messages."""
        return len(self.rows)

    @labelled(step="bring rows back")
    def stage(self, run: RecordedRun, engines: Engines) -> Change:
        """Write the messages, and copies without markers of the files that have both.

        Raises:
            VerificationError: a source file has changed; nothing was committed.
        """
        live = self.undo.live
        paths = pa.array([marked.file.path for marked in self.marked], pa.string())
        has_markers = pc.is_in(live["path"], value_set=paths)
        partly = [marked for marked in self.marked if marked.others]
        copies = [*_copies_of_rows(self, run)] + [
            _Copy(
                RewriteTask(marked.file, (run.stage_copy(marked.file),), marked.markers),
                marked.others,
            )
            for marked in partly
        ]
        added = _written(self.undo, copies, live.filter(pc.invert(has_markers)), engines)
        removed = live.filter(has_markers)
        markers = {marked.file.path: marked.markers for marked in partly}
        return Change(
            remove=removed,
            add=added,
            ranges=[ranges_of_files(removed, markers)],
            requirements=[AssertSegmentOrder(added), RowsCompared(self.compared)],
        )


UndoSources = UnchangedFiles | RowsOfFiles


def find_files(undo: RunToUndo) -> UnchangedFiles:
    """Find the files that a run removed, and verify that the table has none of their messages.

    Raises:
        VerificationError: a removed file is gone.
        RefusedError: a message to restore is in the table again.
    """
    if undo.lost:
        raise VerificationError(describe_change(undo))
    return UnchangedFiles(
        Change(
            remove=undo.added,
            add=undo.removed,
            ranges=[ranges_of_files(undo.markers, {})],
            requirements=_compared_files(undo),
        )
    )


def _compared_files(undo: RunToUndo) -> list[RowsCompared]:
    """Compare rows where ranges of restored files overlap those of kept files, as files of one shuffle do."""
    if not undo.overlaps(undo.without_copies(undo.snapshot.files)):
        return []
    kept = undo.without_copies(undo.live)
    together = inventory.in_order(pa.concat_tables([kept, undo.removed.cast(kept.schema)]))
    overlaps = inventory.refuse_overlaps(undo.opened.name, together)
    try:
        duplicates.refuse_duplicates(undo.layout, overlaps, undo.opened.store.data_files)
    except ForeignRowsError as error:
        # The table's inventory was already checked against the rules: a duplicate here is a message to restore.
        raise RefusedError(describe_change(undo)) from error
    return [RowsCompared(kept["path"].combine_chunks())]


def find_rows(undo: RunToUndo, ranges: Iterable[pa.Table], present: RefusedError) -> RowsOfFiles:
    """Find the files that held what a run removed, and verify that no removed message is in the table.

    Args:
        undo: the run, and the current table.
        ranges: the messages that it removed, some rows at a time; shape `RUN_RANGES`.
        present: the error to raise if the table has one of them.

    Raises:
        RefusedError: the table has one of them.
        VerificationError: a file that held one is gone.
    """
    unlocated = list(rows_of_files(ranges))
    locations = undo.locate([rows.file.path for rows in unlocated])
    if None in locations:
        raise files_lost(undo, locations.count(None), len(locations))
    sources = [
        replace(rows, file=_at(undo, rows.file, str(location)))
        for rows, location in zip(unlocated, locations, strict=True)
    ]
    compared: set[str] = set()
    for rows in sources:
        bounds = int(rows.ranges[0, 0]), int(rows.ranges[-1, 1])
        overlapping = undo.files_between(rows.file.partition, *bounds)
        if overlapping.num_rows:
            if undo.already_present(rows.file.partition, rows.seqs()).any():
                raise present
            compared.update(overlapping["path"].to_pylist())
    paths = pa.array(sorted(compared), pa.string())
    return RowsOfFiles(undo, sources, paths, list(_marked_files(undo)))


def _at(undo: RunToUndo, file: DataFile, location: str) -> DataFile:
    """A file at its present location, with the rows hidden that were hidden when the run began."""
    return undo.layout.data_file((file.path, file.partition, file.segment), location)


def rows_of_files(ranges: Iterable[pa.Table]) -> Iterator[RemovedRows]:
    """The messages that a run removed from each file, without its location, from batches of shape `RUN_RANGES`."""
    by_path: dict[str, list[RemovedRows]] = {}
    for table in ranges:
        for rows in _runs_of_path(table):
            path, partition, segment = (
                rows[name][0].as_py() for name in ("path", "partition", "segment")
            )
            removed = RemovedRows(
                DataFile(path, partition, segment, "", ""),
                pc.sum(rows["messages"]).as_py(),
                sequences_of(rows),
            )
            by_path.setdefault(path, []).append(removed)
    for path in sorted(by_path):
        several = by_path.pop(path)
        ranges_of_path = np.concatenate([rows.ranges for rows in several])
        yield RemovedRows(
            several[0].file,
            sum(rows.messages for rows in several),
            # Ranges in rows of their own may fall between the ranges of another row.
            ranges_of_path[np.argsort(ranges_of_path[:, 0], kind="stable")],
        )


def _runs_of_path(rows: pa.Table) -> Iterator[pa.Table]:
    """Runs of adjacent rows with one path."""
    encoded = rows["path"].combine_chunks().dictionary_encode()
    starts = np.flatnonzero(np.diff(encoded.indices.to_numpy(), prepend=-1))
    for start, end in pairwise([*starts.tolist(), rows.num_rows]):
        yield rows.slice(start, end - start)


def _marked_files(undo: RunToUndo) -> Iterator[MarkedFile]:
    """The files of the table with delete markers of the run.

    Raises:
        VerificationError: a file with markers was merged and is gone, so the markers are unknown.
    """
    merged: dict[int, list[Array]] = {}
    for row in undo.markers.to_pylist():
        written = DataFile(row["path"], row["partition"], row["segment"], "", "")
        if pc.any(pc.equal(undo.live["path"], written.path), min_count=0).as_py():
            yield MarkedFile(written, NO_RANGES, 0)
            continue
        [location] = undo.locate([written.path])
        if location is None:
            raise files_lost(undo, 1, undo.markers.num_rows)
        seqs = seqs_of(_at(undo, written, location))
        merged.setdefault(written.partition, []).append(seqs)
    for partition, parts in merged.items():
        seqs = np.sort(np.concatenate(parts))
        meeting = undo.files_between(partition, int(seqs[0]), int(seqs[-1]))
        messages = meeting["messages"].to_pylist()
        for file, total in zip(undo.opened.store.data_files(meeting), messages, strict=True):
            markers = seqs[np.isin(seqs, seqs_of(file))]
            if len(markers):
                ranges = np.stack([markers, markers], axis=1)
                yield MarkedFile(file, ranges, total - len(markers))


@dataclass(frozen=True)
class _Copy:
    """A copy to be made, and the number of messages that it must contain."""

    task: RewriteTask
    messages: int


def _copies_of_rows(sources: RowsOfFiles, run: RecordedRun) -> Iterator[_Copy]:
    """The copies of removed messages, one for each file and present segment."""
    ends = [
        (rows.file.partition, rows.file.segment, int(rows.ranges[-1, 1])) for rows in sources.rows
    ]
    assignment = SegmentAssignment.of(sources.undo.live, ends)
    for rows, lowest, is_divided in zip(
        sources.rows, assignment.segments, assignment.divided, strict=True
    ):
        pieces = _pieces(assignment, rows, lowest) if is_divided else [(rows, lowest)]
        for piece, base in pieces:
            [target] = run.stage(rows.file.partition, base)
            yield _Copy(RewriteTask(rows.file, (target,), piece.others), piece.messages)


def _pieces(
    assignment: SegmentAssignment, rows: RemovedRows, lowest: int
) -> Iterator[tuple[RemovedRows, int]]:
    """The messages of a file by the segment to which they belong; segments without messages are omitted."""
    for base, outside, messages in assignment.shares(rows.file.partition, lowest, rows.seqs()):
        ranges = difference_of_ranges(rows.ranges, outside)
        yield replace(rows, messages=messages, ranges=ranges), base


def _written(
    undo: RunToUndo, copies: Sequence[_Copy], kept: pa.Table, engines: Engines
) -> pa.Table:
    """Make the copies, shape `FILE_STATS`.

    Raises:
        VerificationError: a source file has changed.
    """
    opened = undo.opened
    weights = [
        length or 0 for length in files.lengths([copy.task.source.location for copy in copies])
    ]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    written = engine.map(copy_remaining, [copy.task for copy in copies], weights)
    for copy, result in zip(copies, written, strict=True):
        _check_count(opened.name, copy, result.messages)
    added = stats_table([row for result in written for row in result.stats])
    together = inventory.in_order(pa.concat_tables([kept, added.cast(kept.schema)]))
    inventory.refuse_overlaps(opened.name, together)
    return added


def _check_count(stream: str, copy: _Copy, messages: int) -> None:
    if messages != copy.messages:
        raise VerificationError(
            f"{stream}: {copy.task.source.location} has {messages:,} of {counted(copy.messages, 'message')} "
            "to copy: the file was changed; nothing was changed by this run; restore messages from an archive or a "
            "backup"
        )
