"""The handling of a stream's directory in every store: creates its table, locates and stages its files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

import pyarrow as pa

from retention.core.counters import Counters
from retention.core.inventory import DataFile
from retention.datafile.expected_stats import expected_stats_of
from retention.errors import BusyError, ForeignRowsError
from retention.ports import Snapshot, Store, Swap, TableHead
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage.crash_points import Step, reached
from retention.stores.checks.exclusion import refuse_without_exclusion
from retention.stores.checks.presence import refuse_lost
from retention.stores.file_paths import check_inside
from retention.stores.layout import (
    Layout,
    StoreSettings,
    check_lengths,
    identities,
    note_made,
    write_format,
)
from retention.stores.logged_table import LoggedTable, TableLog
from retention.stores.row_tombstones import refuse_row_tombstones
from retention.stores.staged_files import FilePlaces, StagedFiles


class FileStore(LoggedTable):
    """The part of `retention.ports.Store` that does not depend on the table format.

    Args:
        layout: the stream's layout.
        settings: its storage settings.
        clock: the wall clock, nanoseconds since the epoch.
        log: its table's log.
        places: the locations of its files.
    """

    def __init__(
        self,
        layout: Layout,
        settings: StoreSettings,
        clock: Callable[[], int],
        log: TableLog,
        places: FilePlaces,
    ) -> None:
        super().__init__(layout, settings, log)
        self._clock = clock
        self._file_places = places
        self._staged = StagedFiles(layout, places)

    def store(self) -> Self:
        """Itself: it is open."""
        return self

    def _create(self) -> bool:
        """Create the empty table unless it exists; returns whether the existing one may be a dropped one.

        Raises:
            DamagedError: the table existed once and is missing.
            RefusedError: commits do not exclude each other at that location.
        """
        refuse_without_exclusion(self._layout.root)
        record = self._check_format()
        is_made = self._table_log.exists()
        if not is_made:
            refuse_lost(self._layout, record, self._table_log.exists)
            if record is None:
                write_format(self._layout, self._settings.format)
            self._table_log.begin(self._now_ms())
        if record is None or not record.is_whole:
            note_made(self._layout, self._settings.format)
        return is_made and record is not None and record.was_dropped

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`; each row has its file's row number."""
        from retention.stores.sidecar import subject_digests

        return subject_digests.subject_counts(self._layout, files, self.data_files)

    def stage(
        self, partition: int, segment: int, count: int = 1, *, merged: bool = False
    ) -> tuple[DataFile, ...]:
        """Stage new files of a segment to divide rows among; each row belongs in exactly one of them."""
        return self._staged.stage(partition, segment, count, merged=merged)

    def stage_copy(self, source: DataFile) -> DataFile:
        """Stage a new file to replace `source`."""
        return self._staged.stage_copy(source)

    def stage_vector(self, source: DataFile) -> DataFile:
        """Stage a new vector for `source`: the same file under it, to replace `source`."""
        return self._staged.stage_vector(source)

    def discard(self, paths: Sequence[str]) -> None:
        """Delete every attempt's files for those of `paths` that were staged here and are in no commit."""
        self._staged.discard(paths)

    def head(self, snapshot: Snapshot) -> TableHead | None:
        """Return None: commits need the files of a snapshot."""
        del snapshot
        return None

    def data_files(self, files: pa.Table) -> list[DataFile]:
        """The live files at their current locations."""
        if not files.num_rows:
            return []
        check_inside(self._layout, files["path"])
        located = [
            replace(
                self._layout.data_file(row, self._file_places.find(row[0])),
                claim=claim,
                later=self._file_places.trashed(row[0]),
            )
            for row, claim in zip(identities(files), expected_stats_of(files), strict=True)
        ]
        check_lengths(self._layout, files, located)
        return located

    def _follow(self, counters: Counters, files: pa.Table) -> None:
        """Refuse files with row tombstones, and stage under the log's claims from now on.

        Raises:
            RefusedError: an earlier build released messages without rewriting their files.
        """
        refuse_row_tombstones(self._layout, counters.released, files)
        self._staged.claims = counters.staging_claims

    def _unchecked_doubles(self, described: pa.Table) -> int:
        """The number of files that must be opened to find duplicate messages."""
        from retention.stores.checks import duplicates, inventory

        overlapping = inventory.refuse_overlaps(self.stream, inventory.in_order(described))
        return sum(len(segment) for segment in duplicates.unchecked(self._layout, overlapping))

    def _spent_notes(self, describe: Callable[[], pa.Table | None]) -> list[str]:
        """Locations of notes beside the table on files that it no longer has.

        Args:
            describe: called only if there are notes, returns statistics of all live files; None: files must be opened.
        """
        from retention.stores.checks import duplicates, inventory

        described = describe() if duplicates.notes(self._layout) else None
        if described is None:
            return []
        try:
            overlapping = inventory.refuse_overlaps(self.stream, inventory.in_order(described))
        except ForeignRowsError:
            # The next reader of the rows raises this error.
            return []
        return duplicates.spent_notes(self._layout, overlapping)

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000


def begin_again(store: Store) -> None:
    """Begin another table if the stream is dropped, unless another process does so first."""
    snapshot = store.snapshot()
    if not snapshot.counters.dropped_ns or snapshot.files.num_rows:
        return
    from retention.core.table_updates import BeginTable

    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=FILE_STATS.empty_table(),
        metadata={"run": f"begin-{uuid.uuid4().hex}"},
        updates=[BeginTable(snapshot.counters.epoch)],
    )
    with suppress(BusyError):
        store.commit(swap, snapshot)
        reached(Step.TABLE_BEGUN)


def table_id_of(made_as: str, counters: Counters) -> str:
    """The id of a table: its log's id, or a derived one for a table that replaced a dropped one in the same log.

    A dropped table already has the id of its successor: nothing of the old table matters to the next writer.

    Args:
        made_as: the id with which the log began.
        counters: the table's counters.
    """
    generation = counters.epoch if counters.dropped_ns else counters.generation
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{made_as}/{generation}")) if generation else made_as
