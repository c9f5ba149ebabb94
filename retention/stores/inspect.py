"""Read-only inspection of a stream's table: live files, their locations, and unfinished or unfit files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.schemas.files import LOGGED_FILES
from retention.storage import files
from retention.stores.checks import inventory, number_bounds
from retention.stores.checks.presence import refuse_lost
from retention.stores.delta import properties
from retention.stores.delta import table as delta_table
from retention.stores.delta.commit_tokens import refuse_lost as refuse_lost_commits
from retention.stores.delta.returned import refuse_returned
from retention.stores.layout import FormatRecord, Layout, check_format
from retention.stores.parquet.adopt import Unfit, unfit_files
from retention.stores.parquet.log import ParquetLog, before_first_entry
from retention.stores.parquet.settle_files import Places
from retention.stores.sidecar.stats_cache import StatisticsCache


@dataclass(frozen=True)
class Inspection:
    """The state of a table: version, files, unfinished moves, unfit files, and properties that differ."""

    version: int
    """The table's version; -1 if the table does not exist yet and another writer's files do."""
    files: pa.Table
    """The live files, shape `LOGGED_FILES`."""
    locations: list[str]
    """The expected location of each file, in the same order."""
    unknown: int
    """The number of files that the next plan opens once, because their statistics are not cached."""
    vectors: int
    """The number of files with rows hidden by another writer's deletion vectors."""
    unmoved: int
    """The number of commits with unfinished file moves (Parquet)."""
    unfit: Sequence[Unfit]
    """Files of other writers that the stream cannot adopt (Parquet)."""
    grace: Mapping[str, str]
    """Table properties that differ from the configuration's grace, with the configured values (Delta)."""
    grace_statement: str | None = None
    """The SQL that sets these properties if only the table's owner can; None if a run sets them."""

    def wrong_lengths(self) -> list[tuple[str, int | None, int]]:
        """Missing files and wrong lengths: location, current length (None if missing), committed length."""
        lengths = files.lengths(self.locations)
        logged = self.files["file_bytes"].to_pylist()
        rows = zip(self.locations, lengths, logged, strict=True)
        return [row for row in rows if row[1] != row[2]]


def inspect_table(layout: Layout, format_: str, grace_ns: int) -> Inspection | None:
    """Inspect a table; None if nothing was ever written.

    Raises:
        RefusedError: the engine does not handle a table feature or property.
        ForeignRowsError: files of another writer break the storage rules, as far as their statistics tell.
        DamagedError: the log cannot be read, or is lost.
    """
    record = check_format(layout, format_)
    inspection = _delta(layout, grace_ns) if format_ == "delta" else _parquet(layout, record)
    if inspection is None:
        refuse_lost(layout, record, lambda: False)
    return inspection


def _delta(layout: Layout, grace_ns: int) -> Inspection | None:
    if not delta_table.exists(layout):
        return None
    handle, live = delta_table.read_handle(layout)
    refuse_lost_commits(layout)
    refuse_returned(layout, handle.table.version())
    inventory.refuse_nulls(layout, live)
    number_bounds.refuse_impossible(layout, live)
    number_bounds.refuse_counters(layout, inventory.effective(handle.logged, live))
    logged = live.select(LOGGED_FILES.names)
    _, missing = StatisticsCache(layout, lambda: 0).match(logged)
    _refuse_overlaps(layout, live)
    return Inspection(
        handle.table.version(),
        logged,
        [layout.live(path) for path in logged["path"].to_pylist()],
        missing.num_rows,
        len(handle.vectors),
        0,
        (),
        properties.differing(handle.table, grace_ns),
        properties.owners_statement(layout, handle.table, grace_ns),
    )


def _parquet(layout: Layout, record: FormatRecord | None) -> Inspection | None:
    log = ParquetLog(layout)
    places = Places(layout, log)
    state = log.read() if log.exists() else before_first_entry()
    foreign = places.foreign(state)
    if not state.table_id:
        refuse_lost(layout, record, log.exists)
        if not foreign:
            return None
    number_bounds.refuse_impossible(layout, state.files)
    number_bounds.refuse_counters(layout, inventory.effective(state.counters, state.files))
    unfit = unfit_files(layout)
    _refuse_overlaps(layout, state.files)
    return Inspection(
        state.version,
        state.files.select(LOGGED_FILES.names),
        [places.find(path) for path in state.files["path"].to_pylist()],
        len(foreign) - len(unfit),
        0,
        places.unfinished(state),
        unfit,
        {},
    )


def _refuse_overlaps(layout: Layout, live: pa.Table) -> None:
    known = live.filter(pc.and_(pc.is_valid(live["min_seq"]), pc.is_valid(live["max_seq"])))
    inventory.refuse_overlaps(layout.stream, inventory.in_order(known))
