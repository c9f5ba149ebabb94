"""A stream's table looked over without changing anything: its live files, their places, and what hides in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

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
from schemas.files import LOGGED_FILES


@dataclass(frozen=True)
class Inspection:
    """A table's account of itself: its version and files, and what is unfinished, unfit or wanted otherwise."""

    version: int
    """The table's version; -1: it is not made yet, and another writer's files are there."""
    files: pa.Table
    """The live files, shape `LOGGED_FILES`."""
    locations: list[str]
    """The place where each of the files should be, in the same order."""
    unknown: int
    """Files that the next plan opens once, because no statistics of them are kept."""
    vectors: int
    """Files of which a deletion vector of another writer hides rows."""
    unmoved: int
    """Commits of which files were not brought to their places yet (Parquet)."""
    unfit: Sequence[Unfit]
    """Files of other writers that the stream cannot take in (Parquet)."""
    grace: Mapping[str, str]
    """Properties of the table that the configuration's grace wants otherwise, with the wanted values (Delta)."""
    grace_statement: str | None = None
    """The SQL that sets these properties, where only the table's owner can; None: a run sets them."""

    def wrong_lengths(self) -> list[tuple[str, int | None, int]]:
        """Files that are missing or have another length: location, length now (None: missing), committed length."""
        lengths = files.lengths(self.locations)
        logged = self.files["file_bytes"].to_pylist()
        rows = zip(self.locations, lengths, logged, strict=True)
        return [row for row in rows if row[1] != row[2]]


def inspect_table(layout: Layout, format_: str, grace_ns: int) -> Inspection | None:
    """Look a table over; None if nothing was ever written.

    Raises:
        RefusedError: a table feature or property that the engine does not handle.
        ForeignRowsError: files of another writer break the storage rules, as far as their statistics tell.
        DamagedError: the log cannot be read, or is gone.
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
