"""Staging for a plan's commit: copies without removed rows, and markers, each verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retention.apply.preconditions import check_copy
from retention.apply.recorded_run import RecordedRun
from retention.context.context import OpenedStream
from retention.context.position import locate
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.message_rows import complete_rows
from retention.core.read_count import ReadCount
from retention.core.vector_paths import vector_place
from retention.datafile.hidden_rows import rewrite_or_hide
from retention.datafile.rewrite import RewriteResult, RewriteTask
from retention.datafile.segment_writer import PARTITION, Staged, Staging, stage_rows
from retention.dialects.jetstream import JetStream
from retention.engine_port import Engine
from retention.engines.select import Engines
from retention.errors import StalePlanError
from retention.plan.actions import Rewrite
from retention.plan.plan import Plan
from retention.planners.scratch import within_reach
from retention.rules.erase import Erase
from retention.rules.jetstream import delete_markers
from retention.schemas.files import FileStats
from retention.stores.file_paths import kin_of


@dataclass(frozen=True)
class Additions:
    """Staged files of one plan."""

    stats: Sequence[FileStats]
    """Rows of `FILE_STATS` as read back."""
    read: ReadCount
    """The cost of copying."""
    open_base: Mapping[int, int]
    """Partition → the base of the segment that is open after the markers."""

    @property
    def bytes(self) -> int:
        """The length of all new data files; vectors are small."""
        return sum(row["file_bytes"] for row in self.stats if vector_place(row["path"]) is None)


def stage_additions(
    opened: OpenedStream, plan: Plan, engines: Engines, run: RecordedRun
) -> Additions:
    """Stage all files that a plan's commit adds.

    Args:
        opened: the stream.
        plan: the decisions.
        engines: where rows are copied.
        run: the run that commits the files.

    Raises:
        StalePlanError: messages were appended since: a marker must not announce a deletion that did not happen.
        VerificationError: a copy differs from the plan.
    """
    rewrite = plan.actions.rewrite
    if not rewrite.files.num_rows and not plan.sets_sequences:
        return Additions([], ReadCount(), {})
    lengths = rewrite.files["file_bytes"].to_pylist()
    engine = engines.pick(opened.config.engine, sum(lengths), opened.config.local_limit)
    marked = _stage_markers(opened, plan, run)
    written = _write(opened, rewrite, _copies(opened, plan, engine, run), engine)
    return Additions(
        [*(row for copy in written for row in copy.stats), *(marked.stats if marked else [])],
        sum((copy.read for copy in written), ReadCount()),
        marked.open_base if marked else {},
    )


def _copies(
    opened: OpenedStream, plan: Plan, engine: Engine, run: RecordedRun
) -> list[RewriteTask]:
    rewrite = plan.actions.rewrite
    targets = _copied if isinstance(plan.header.request, Erase) else _targets
    sources = opened.store.data_files(rewrite.files)
    reached = within_reach(opened, engine, rewrite.removed, rewrite.numbers)
    return [
        RewriteTask(source, targets(opened, source, row, run), removed)
        for source, row, removed in zip(
            sources, rewrite.files.to_pylist(), reached.of_files(rewrite.numbers), strict=True
        )
    ]


def _targets(
    opened: OpenedStream, source: DataFile, row: Mapping[str, Any], run: RecordedRun
) -> tuple[DataFile, ...]:
    """The source under a vector where that is better, or else locations for its copies."""
    if opened.store.takes_vector(run.snapshot, row):
        return (run.stage_vector(source),)
    return _copied(opened, source, row, run)


def _copied(
    opened: OpenedStream, source: DataFile, row: Mapping[str, Any], run: RecordedRun
) -> tuple[DataFile, ...]:
    """Locations for the copies of a source: part of a split by deadline remains one file, others may be split."""
    del row
    most_files = opened.config.most_files
    if most_files == 1 or kin_of(source.path) is not None:
        return (run.stage_copy(source),)
    return run.stage(source.partition, source.segment, most_files)


@labelled(step="copy rows that stay")
def _write(
    opened: OpenedStream, rewrite: Rewrite, copies: list[RewriteTask], engine: Engine
) -> list[RewriteResult]:
    written = engine.map(rewrite_or_hide, copies, rewrite.files["file_bytes"].to_pylist())
    for planned, copy in zip(rewrite.files.to_pylist(), written, strict=True):
        check_copy(opened.name, planned, copy)
    return written


def _stage_markers(opened: OpenedStream, plan: Plan, run: RecordedRun) -> Staged | None:
    """Stage a plan's markers; None: the next sequence is unchanged."""
    used = plan.actions.sequence_use
    if used is None:
        return None
    position = locate(opened, run.snapshot)
    if position.next_seq != used.first:
        raise StalePlanError(
            f"{plan.header.stream}: the next sequence is {position.next_seq:,}, and this plan uses those from "
            f"{used.first:,} on: messages were stored since; nothing was changed; plan again"
        )
    raw = delete_markers.rows(used.markers, plan.header.policy, plan.header.as_of_ns)
    rows = [complete_rows(raw, plan.header.policy.storage)] if raw.num_rows else []
    ends = JetStream.of(opened.config).ends(position.tail(PARTITION))
    staging = Staging(run, opened.config.most_files)
    return replace(stage_rows(staging, rows, ends), next_seq={PARTITION: used.after})
