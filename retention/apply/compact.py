"""Compactions: planning the merges of a stream, and carrying them out batch by batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from retention.apply.compaction_totals import CompactionTotals, compaction_totals
from retention.apply.deletion_vectors import resolving_vectors
from retention.apply.merge_batch import MergedBatch, merge_batch
from retention.apply.recover import settle_interrupted
from retention.config.keeping import Compaction
from retention.context.context import OpenedStream
from retention.context.maintenance import maintaining
from retention.context.ownership import refuse_other_owner
from retention.core.labels import on_stream
from retention.core.units import SECOND, parse_duration, parse_size
from retention.core.wording import counted
from retention.engines.select import Engines
from retention.errors import DamagedError
from retention.history.compaction_report import CompactionReport
from retention.history.runs import history_of
from retention.plan.compaction import CompactionPlan
from retention.planners.compaction import MergeBounds, plan_merges
from retention.ports import Snapshot


@dataclass(frozen=True)
class CompactionLimits:
    """The limits of one compaction's work; None: no limit."""

    max_bytes: int | None = None
    """The most bytes to rewrite."""
    max_time_ns: int | None = None
    """The time after which no further batch begins, nanoseconds."""

    @classmethod
    def parsed(cls, max_bytes: str | None, max_time: str | None) -> CompactionLimits:
        """Parse a size such as `10GiB` and a duration such as `30m`.

        Raises:
            UsageError: one of them is not valid.
        """
        return cls(
            None if max_bytes is None else parse_size(max_bytes),
            None if max_time is None else parse_duration(max_time),
        )

    def without(self, report: CompactionReport) -> CompactionLimits:
        """The remaining limits after some work."""
        left_bytes, left_ns = self.max_bytes, self.max_time_ns
        if left_bytes is not None:
            left_bytes = max(left_bytes - report.bytes_read, 0)
        if left_ns is not None:
            left_ns = max(left_ns - int(report.seconds * SECOND), 0)
        return CompactionLimits(left_bytes, left_ns)


def plan_compaction(opened: OpenedStream, snapshot: Snapshot) -> CompactionPlan:
    """Plan the merges worth their cost in an opened table.

    Raises:
        HiddenRowsError: deletion vectors of another writer hide rows, which only Spark can resolve.
        ForeignRowsError: rows of other writers break the storage rules.
        DamagedError: a required data file is damaged.
    """
    config = opened.config
    bounds = MergeBounds(
        config.compact or Compaction(),
        config.segment_size,
        config.segment_span_ns,
        config.topic is None and not config.whole_segments,
        config.most_files,
    )
    hidden = opened.store.hidden_rows(snapshot)
    return plan_merges(opened.store.inventory(snapshot), bounds, hidden)


def show_compaction(opened: OpenedStream, max_bytes: int | None = None) -> CompactionPlan:
    """Plan a compaction to show it; a stream that was never written to has nothing to merge.

    Raises:
        HiddenRowsError, ForeignRowsError, DamagedError: as `plan_compaction`.
    """
    if not opened.table.exists():
        return CompactionPlan(opened.name, "", -1, 0)
    return plan_compaction(opened, opened.store.snapshot()).within(max_bytes)


@on_stream
def compact_now(
    opened: OpenedStream, engines: Engines, limits: CompactionLimits
) -> CompactionReport:
    """Plan a compaction and carry it out, best merges first; no message is changed, added or removed.

    The stream's maintenance lease is held for one batch at a time, so that passes can run in between.

    Raises:
        BusyError: another run holds the lease.
        RefusedError: another configuration owns the stream.
        DamagedError: files of some merges are damaged; the other merges are done.
        VerificationError: the rows written differ from those read; nothing of that batch was committed.
    """
    started = opened.clock()
    if not opened.table.exists():
        return CompactionReport(opened.name)
    refuse_other_owner(opened)
    plan = _planned(opened, engines)
    done: list[MergedBatch] = []
    for batch in plan.within(limits.max_bytes).batches():
        if limits.max_time_ns is not None and opened.clock() - started >= limits.max_time_ns:
            break
        with maintaining(opened):
            settle_interrupted(opened, history_of(opened.warehouse, opened.name))
            done.append(merge_batch(opened, plan, batch, engines))
            if done[-1].merged:
                _count(opened, done[-1])
    report = _report(opened, plan, done, started)
    _refuse_damaged(report, done)
    return report


def _planned(opened: OpenedStream, engines: Engines) -> CompactionPlan:
    with maintaining(opened):
        settle_interrupted(opened, history_of(opened.warehouse, opened.name))
        return resolving_vectors(
            opened, lambda: plan_compaction(opened, opened.store.snapshot()), engines
        )


def _count(opened: OpenedStream, batch: MergedBatch) -> None:
    note = compaction_totals(opened)
    files = [merge.files for merge in batch.merged]
    written = sum(row["file_bytes"] for row in batch.added)
    note.save((note.load() or CompactionTotals()).with_merged(files, written))


def _report(
    opened: OpenedStream, plan: CompactionPlan, done: Iterable[MergedBatch], started: int
) -> CompactionReport:
    merged = [merge for batch in done for merge in batch.merged]
    added = [row for batch in done for row in batch.added]
    return CompactionReport(
        stream=opened.name,
        runs=tuple(batch.run for batch in done if batch.merged),
        merges=len(merged),
        files_before=sum(merge.files.num_rows for merge in merged),
        files_after=len(added),
        bytes_read=sum(merge.bytes_rewritten for merge in merged),
        bytes_written=sum(row["file_bytes"] for row in added),
        pending=len(plan.merges) - len(merged),
        amplification=(compaction_totals(opened).load() or CompactionTotals()).amplification,
        seconds=round((opened.clock() - started) / SECOND, 6),
    )


def _refuse_damaged(report: CompactionReport, done: Iterable[MergedBatch]) -> None:
    """Report the files that were skipped because they are damaged, once all other work is done.

    Raises:
        DamagedError: at least one was.
    """
    damaged = [sentence for batch in done for sentence in batch.damaged]
    if damaged:
        raise DamagedError(
            f"{report.stream}: skipped {counted(len(damaged), 'merge')} with a damaged file, and did "
            f"{report.merges} without one; the first: {damaged[0]}"
        )
