"""Staging for a plan's commit: copies without what goes, markers, and the record of hidden rows; each checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.preconditions import check_copy
from retention.context.context import OpenedStream
from retention.context.position import locate
from retention.core.inventory import DataFile, ExpectedStats, ReadCount
from retention.core.labels import labelled
from retention.core.message_rows import complete_rows
from retention.core.seq_ranges import ranges_in, union_of_ranges
from retention.datafile.parquet import describe
from retention.datafile.rewrite import RewriteResult, RewriteTask, copy_remaining
from retention.datafile.segment_writer import PARTITION, Staged, Staging, stage_rows
from retention.dialects.jetstream import JetStream
from retention.engines.select import Engines
from retention.errors import StalePlanError
from retention.plan.plan import Plan
from retention.ports import Snapshot
from retention.rules.jetstream import delete_markers
from retention.stores.row_tombstones import record_row
from schemas.files import FILE_STATS, LOGGED_FILES, TOMBSTONED_FILES


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


@dataclass(frozen=True)
class TombstoneUpdate:
    """The numbers of two records of released ranges: as it was, and as the commit names it."""

    before: int
    after: int
    read: ReadCount = field(default_factory=ReadCount)
    """The cost of learning what is left of files."""

    def as_json(self) -> dict[str, Any]:
        """The run history's field for the two numbers: none, if the record stays."""
        return {} if self.before == self.after else {"released": [self.before, self.after]}


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


@labelled(step="copy rows that stay")
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


@labelled(step="count rows that stay")
def next_record(
    opened: OpenedStream, plan: Plan, snapshot: Snapshot, engines: Engines
) -> TombstoneUpdate:
    """Write the record that holds once a plan is carried out.

    Files that the plan does not touch keep what is hidden of them, also those that are not live: undoing a roll-up
    brings them back.

    Raises:
        VerificationError: what is left of a file is not what the plan says; nothing was committed.
    """
    number = snapshot.counters.released
    before = opened.store.released(number)
    touched = pc.is_in(before["path"], value_set=plan.files["path"].combine_chunks())
    hides = plan.actions.tombstone.files
    if not hides.num_rows and not pc.any(touched, min_count=0).as_py():
        return TombstoneUpdate(number, number)
    tombstoned = list(_hiding(opened, plan))
    engine = engines.pick(
        opened.config.engine, sum(hides["file_bytes"].to_pylist()), opened.config.local_limit
    )
    remaining = engine.map(describe, tombstoned, hides["file_bytes"].to_pylist())
    stored = opened.store.stored(hides.select(FILE_STATS.names)).to_pylist()
    rows = []
    for planned, file, left, whole in zip(
        hides.to_pylist(), tombstoned, remaining, stored, strict=True
    ):
        check_copy(opened.name, planned, RewriteResult([left.stats], left.read))
        pin = {name: planned[name] for name in LOGGED_FILES.names}
        rows.append(record_row(left.stats | pin, whole, file.hidden))
    record = pa.concat_tables(
        [before.filter(pc.invert(touched)), pa.Table.from_pylist(rows, schema=TOMBSTONED_FILES)]
    )
    read = sum((left.read for left in remaining), ReadCount())
    return TombstoneUpdate(number, opened.store.keep_released(record), read)


def _hiding(opened: OpenedStream, plan: Plan) -> Iterator[DataFile]:
    """The files that stay, as they are to be read from now on; nothing is known of their rows yet."""
    tombstone = plan.actions.tombstone
    files = opened.store.data_files(tombstone.files)
    for file, ranges in zip(files, tombstone.ranges(), strict=True):
        yield replace(
            file, hidden=union_of_ranges(file.hidden, ranges_in(ranges)), claim=ExpectedStats()
        )
