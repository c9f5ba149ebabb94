"""Additions of a plan's commit: copies without what goes, and markers behind the last sequence; staged and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retention.apply.preconditions import check_copy
from retention.context.context import OpenedStream
from retention.context.position import locate
from retention.core.inventory import DataFile, ReadCount
from retention.core.message_rows import complete_rows
from retention.datafile.rewrite import RewriteResult, RewriteTask, copy_remaining
from retention.datafile.segment_writer import PARTITION, Staged, Staging, stage_rows
from retention.dialects.jetstream import JetStream
from retention.engines.select import Engines
from retention.errors import StalePlanError
from retention.plan.plan import Plan
from retention.ports import Snapshot
from retention.rules.jetstream import delete_markers


@dataclass(frozen=True)
class Additions:
    """Staged files of one plan."""

    stats: Sequence[dict[str, Any]]
    """Rows of `FILE_STATS` as read back."""
    read: ReadCount
    """The cost of copying."""
    open_base: Mapping[int, int]
    """Partition → the base of the segment that is open behind the markers."""

    @property
    def bytes(self) -> int:
        """Length of all the files."""
        return sum(row["file_bytes"] for row in self.stats)


def stage_additions(
    opened: OpenedStream, plan: Plan, snapshot: Snapshot, engines: Engines
) -> Additions:
    """Stage everything that a plan's commit adds; if anything fails, nothing of it stays.

    Args:
        opened: the stream.
        plan: what was decided.
        snapshot: what the commit will be checked against.
        engines: where rows are copied.

    Raises:
        StalePlanError: messages were appended since: a marker may announce no deletion that did not happen.
        VerificationError: a copy does not hold what the plan says.
    """
    copies = _copies(opened, plan)
    staging = Staging(opened.store, opened.config.most_files)
    try:
        marked = _stage_markers(opened, plan, snapshot, staging)
        written = _write(opened, plan, copies, engines)
    except BaseException:
        opened.store.discard([target.path for copy in copies for target in copy.targets])
        staging.discard()
        raise
    return Additions(
        [*(row for copy in written for row in copy.stats), *(marked.stats if marked else [])],
        sum((copy.read for copy in written), ReadCount()),
        marked.open_base if marked else {},
    )


def _copies(opened: OpenedStream, plan: Plan) -> list[RewriteTask]:
    rewrite = plan.actions.rewrite
    sources = opened.store.data_files(rewrite.files)
    return [
        RewriteTask(source, _targets(opened, source), ranges)
        for source, ranges in zip(sources, rewrite.ranges(), strict=True)
    ]


def _targets(opened: OpenedStream, source: DataFile) -> tuple[DataFile, ...]:
    """Places for a file's copies: one that is divided by deadline stays one, others are divided if the layout is so."""
    most_files = opened.config.most_files
    if most_files == 1 or opened.store.is_apart(source):
        return (opened.store.stage_copy(source),)
    return opened.store.stage_apart(source.partition, source.segment, most_files)


def _write(
    opened: OpenedStream, plan: Plan, copies: list[RewriteTask], engines: Engines
) -> list[RewriteResult]:
    rewrites = plan.actions.rewrite.files
    weights = rewrites["file_bytes"].to_pylist()
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    written = engine.map(copy_remaining, copies, weights)
    for planned, copy in zip(rewrites.to_pylist(), written, strict=True):
        check_copy(opened.name, planned, copy)
    return written


def _stage_markers(
    opened: OpenedStream, plan: Plan, snapshot: Snapshot, staging: Staging
) -> Staged | None:
    """Stage a plan's markers; None if the next sequence stays."""
    mark = plan.actions.mark
    if mark is None:
        return None
    position = locate(opened, snapshot)
    if position.next_seq != mark.first:
        raise StalePlanError(
            f"{plan.stream}: the next sequence is {position.next_seq:,}, and this plan uses those from "
            f"{mark.first:,} on; messages came since, nothing was changed; plan again"
        )
    raw = delete_markers.rows(mark.markers, plan.policy, plan.as_of_ns)
    rows = [complete_rows(raw, plan.policy.storage)] if raw.num_rows else []
    ends = JetStream.of(opened.config).ends(position.tail(PARTITION))
    return replace(stage_rows(staging, rows, ends), next_seq={PARTITION: mark.after})
