"""Rows that a plan hides in files that stay: the next record of what is released, for the plan's commit to name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.preconditions import check_copy
from retention.context.context import OpenedStream
from retention.core.inventory import DataFile, ExpectedStats, ReadCount
from retention.core.seq_ranges import union_of_ranges
from retention.datafile.parquet import describe
from retention.datafile.rewrite import RewriteResult
from retention.engines.select import Engines
from retention.plan.plan import Plan
from retention.ports import Snapshot
from retention.stores.row_tombstones import record_row
from schemas.files import FILE_STATS, LOGGED_FILES, TOMBSTONED_FILES


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
        yield replace(file, hidden=union_of_ranges(file.hidden, ranges), claim=ExpectedStats())
