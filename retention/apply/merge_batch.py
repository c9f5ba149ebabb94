"""One batch of a compaction: its merges staged and compared, one commit, two records in the run history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.change import Change
from retention.apply.recorded_run import RecordedRun, recorded_run
from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.labels import labelled
from retention.core.table_requirements import AssertSegmentOrder
from retention.datafile.merge import MergeResult, MergeTask, merge_files
from retention.datafile.parquet import stats_table
from retention.engines.select import Engines
from retention.errors import StalePlanError
from retention.history.kinds import Compacted
from retention.plan.compaction import CompactionPlan, Merge
from retention.ports import Snapshot
from retention.schemas.files import FILE_STATS, FileStats


@dataclass(frozen=True)
class MergedBatch:
    """The work of one batch."""

    run: str
    """The name of its run."""
    merged: Sequence[Merge] = ()
    added: Sequence[FileStats] = ()
    """The new files: rows of `FILE_STATS` as read back."""
    damaged: Sequence[str] = field(default_factory=list)
    """A sentence for each merge that was skipped because one of its files is damaged."""


def merge_batch(
    opened: OpenedStream, plan: CompactionPlan, batch: Sequence[Merge], engines: Engines
) -> MergedBatch:
    """Carry out some merges under the stream's maintenance lease; merges with changed files are skipped.

    Args:
        opened: the stream.
        plan: the plan that contains them.
        batch: the merges.
        engines: where rows are copied.

    Raises:
        VerificationError: the rows written differ from those read; nothing was committed.
    """
    snapshot = opened.store.snapshot()
    damaged: list[str] = []
    try:
        with recorded_run(opened, snapshot) as run:
            merges = _current(plan, batch, snapshot)
            results = _written(opened, run, merges, engines)
            damaged += [result.damage for result in results if result.damage is not None]
            whole = zip(merges, results, strict=True)
            done = [merge for merge, result in whole if result.damage is None]
            if done:
                added = [row for result in results for row in result.stats]
                work = MergedBatch(run.name, done, added, damaged)
                _commit(opened, run, work)
                return work
    except StalePlanError:
        # Another writer changed files of the batch: the next compaction plans again.
        pass
    return MergedBatch(run.name, damaged=damaged)


def _current(plan: CompactionPlan, batch: Sequence[Merge], snapshot: Snapshot) -> list[Merge]:
    """The merges with files unchanged since the plan."""
    if (snapshot.table_id, snapshot.counters.epoch) != (plan.table_id, plan.epoch):
        return []
    live = snapshot.files["path"].combine_chunks()
    return [merge for merge in batch if pc.all(pc.is_in(merge.files["path"], live)).as_py()]


@labelled(step="merge files")
def _written(
    opened: OpenedStream, run: RecordedRun, merges: Sequence[Merge], engines: Engines
) -> list[MergeResult]:
    """Write and compare the new files of merges; those of merges with a damaged file are deleted."""
    tasks = [_task(opened, run, merge) for merge in merges]
    weights = [merge.bytes_rewritten for merge in merges]
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    results = engine.map(merge_files, tasks, weights)
    damaged = (task for task, result in zip(tasks, results, strict=True) if result.damage)
    run.discard([target.path for task in damaged for target in task.targets])
    return results


def _task(opened: OpenedStream, run: RecordedRun, merge: Merge) -> MergeTask:
    sources = iter(opened.store.data_files(merge.files))
    return MergeTask(
        tuple(tuple(islice(sources, count)) for count in merge.spans),
        _targets(opened, run, merge),
        pc.sum(merge.files["messages"]).as_py(),
    )


def _targets(opened: OpenedStream, run: RecordedRun, merge: Merge) -> tuple[DataFile, ...]:
    """Locations for the new files: a file that is part of a split by deadline remains one."""
    if merge.files.num_rows == 1:
        return (run.stage_copy(opened.store.data_files(merge.files)[0]),)
    most_files = opened.config.most_files
    return run.stage(merge.partition, merge.segment, most_files, merged=True)


def _commit(opened: OpenedStream, run: RecordedRun, work: MergedBatch) -> None:
    added = stats_table(work.added)
    removed = pa.concat_tables([merge.files for merge in work.merged]).select(FILE_STATS.names)
    change = Change(
        remove=removed,
        add=added,
        ranges=(),
        requirements=[AssertSegmentOrder(added)],
        metadata={"merges": len(work.merged)},
        data_change=False,
    )
    outcome = run.commit(_record(opened, work), change)
    run.outcome = outcome.updated(next_seq=dict(run.snapshot.counters.next_seq))


def _record(opened: OpenedStream, work: MergedBatch) -> Compacted:
    return Compacted(
        run=work.run,
        as_of_ns=opened.clock(),
        removed_messages=0,
        removed_bytes=0,
        by_rule={},
        files_before=sum(merge.files.num_rows for merge in work.merged),
        files_after=len(work.added),
        bytes_read=sum(merge.bytes_rewritten for merge in work.merged),
        bytes_written=sum(row["file_bytes"] for row in work.added),
    )
