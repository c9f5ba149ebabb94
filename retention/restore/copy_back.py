"""Copies of an archive written back into a table: compared with the manifest, filtered, and read back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from retention.apply.archive import digest_of
from retention.apply.recorded_run import RecordedRun
from retention.context.context import OpenedStream
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.labels import labelled
from retention.core.seq_ranges import ranges_in, union_of_ranges
from retention.core.wording import counted
from retention.datafile.parquet import (
    describe,
    open_messages,
    read_columns,
    stats_table,
    write_messages,
)
from retention.datafile.rewrite import RewriteResult, RewriteTask, remaining_rows
from retention.engines.select import Engines
from retention.errors import DamagedError
from retention.layout.segment_assignment import SegmentAssignment
from retention.restore.open_archive import Archive
from retention.restore.select import CopyPart
from retention.schemas.messages import FILE_COLUMNS
from retention.storage.crash_points import Step, reached


@dataclass(frozen=True)
class CopyTask:
    """A task: write the messages to restore from one copy."""

    copy: RewriteTask
    messages: int
    sha256: str
    subject: str | None
    """Subject of all messages, if a topic gets another name; None: unchanged."""

    def attempt(self) -> CopyTask:
        """The task with a target that no other attempt writes."""
        return replace(self, copy=self.copy.attempt())


@labelled(step="restore rows")
def stage_copies(
    opened: OpenedStream,
    run: RecordedRun,
    archive: Archive,
    parts: Sequence[CopyPart],
    live: pa.Table,
    engines: Engines,
) -> pa.Table:
    """Stage the messages to restore, and return their files, shape `FILE_STATS`.

    Args:
        opened: the stream.
        run: the run that commits the files.
        archive: the archive of the copies.
        parts: the messages to restore.
        live: the stream's files, shape `FILE_STATS`; segments may have been merged since.
        engines: where rows are copied.

    Raises:
        DamagedError: a copy differs from the archived file.
    """
    renamed = archive.is_topic and opened.name != archive.origin.stream
    subject = opened.name if renamed else None
    pieces = list(_divided(archive, parts, live))
    tasks = [
        _task(archive, part, run.stage(part.copy.partition, base)[0], subject)
        for part, base in pieces
    ]
    weights = [part.copy.file_bytes for part, _ in pieces]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    written = engine.map(run_copy, tasks, weights)
    return stats_table([row for copied in written for row in copied.stats])


def _divided(
    archive: Archive, parts: Sequence[CopyPart], live: pa.Table
) -> Iterator[tuple[CopyPart, int]]:
    """The messages to restore from each copy, divided among their present segments."""
    assignment = SegmentAssignment.of(
        live, [(part.copy.partition, part.copy.segment, part.copy.max_seq) for part in parts]
    )
    for part, lowest, several in zip(parts, assignment.segments, assignment.divided, strict=True):
        yield from _pieces(archive, part, assignment, lowest) if several else [(part, lowest)]


def _pieces(
    archive: Archive, part: CopyPart, assignment: SegmentAssignment, lowest: int
) -> Iterator[tuple[CopyPart, int]]:
    """The messages of a copy by the segment to which they belong; segments without messages are omitted."""
    source = part.copy.data_file(archive.directory)
    removed = ranges_in(source.hidden if part.removed is None else part.removed)
    seqs = read_columns(replace(source, hidden=removed), ("seq",))[0]["seq"].to_numpy()
    for base, others, messages in assignment.shares(part.copy.partition, lowest, seqs):
        yield replace(part, messages=messages, removed=union_of_ranges(removed, others)), base


def _task(archive: Archive, part: CopyPart, target: DataFile, subject: str | None) -> CopyTask:
    copy = part.copy
    source = copy.data_file(archive.directory)
    if part.removed is None:
        return CopyTask(
            RewriteTask(source, (target,), NO_RANGES), part.messages, copy.sha256, subject
        )
    # The hidden sequences are included in `removed`.
    unhidden = replace(source, hidden=NO_RANGES)
    return CopyTask(
        RewriteTask(unhidden, (target,), part.removed), part.messages, copy.sha256, subject
    )


def run_copy(task: CopyTask) -> RewriteResult:
    """Carry out a `CopyTask`, and read back the file that it wrote.

    Raises:
        DamagedError: the copy differs from the archived file.
    """
    source, [target] = task.copy.source, task.copy.targets
    if digest_of(source) != task.sha256:
        raise DamagedError(
            f"{source.location}: this copy of an archive is not what was copied (its SHA-256 differs from the "
            "manifest's); nothing was changed; restore it from a copy of the archive"
        )
    rows = remaining_rows(task.copy, open_messages(source))
    sha256 = write_messages(target.location, (_named(table, task.subject) for table in rows))
    written = describe(replace(target, sha256=sha256))
    if written.stats["messages"] != task.messages:
        raise DamagedError(
            f"{source.location}: {counted(written.stats['messages'], 'message comes', 'messages come')} back where "
            f"the manifest has {task.messages:,}; nothing was changed; restore it from a copy of the archive"
        )
    reached(Step.COPY_WRITTEN)
    return RewriteResult([written.stats], written.read)


def _named(rows: pa.Table, subject: str | None) -> pa.Table:
    if subject is None:
        return rows
    at = FILE_COLUMNS.get_field_index("subject")
    return rows.set_column(at, FILE_COLUMNS.field(at), pa.array([subject] * rows.num_rows))
