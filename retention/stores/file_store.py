"""The handling of a stream's files in every store: stages new files, locates live ones, deletes uncommitted ones."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa

from retention.core.inventory import Counters, DataFile, slot_of
from retention.core.table_requirements import AssertStagingClaims
from retention.core.table_updates import BeginTable
from retention.datafile.expected_stats import expected_stats_of
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ForeignRowsError,
    RetentionError,
    StorageError,
    UsageError,
)
from retention.ports import LostCommit, Returned, Snapshot, Swap
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.checks import duplicates, inventory
from retention.stores.checks.exclusion import refuse_without_exclusion
from retention.stores.checks.presence import refuse_lost
from retention.stores.layout import (
    FormatRecord,
    Layout,
    StoreSettings,
    check_format,
    check_inside,
    check_lengths,
    identities,
    merged_mask,
    new_path,
    note_dropping,
    note_made,
    siblings_of,
    write_format,
)
from retention.stores.row_tombstones import refuse_row_tombstones
from retention.stores.sidecar import subject_digests


class FileStore(ABC):
    """The part of `retention.ports.Store` that does not depend on the table format."""

    FORMAT: str

    def __init__(self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]) -> None:
        self._layout = layout
        self._settings = settings
        self._clock = clock
        self._staged = _Staged()
        self._staging_claims = 0

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._layout.stream

    def exists(self) -> bool:
        """Whether the table exists.

        Raises:
            DamagedError: the table existed once and is missing.
        """
        record = self._check_format()
        if self._made():
            return record is None or not record.was_dropped or not self._dropped_at()
        refuse_lost(self._layout, record, self._made)
        return False

    def dropped_ns(self) -> int | None:
        """The instant at which the stream was dropped; None if it is not dropped. Its files may still exist."""
        record = self._check_format()
        if record is None or not record.was_dropped or not self._made():
            return None
        return self._dropped_at() or None

    def generation(self) -> int:
        """The generation of the table; opens the table only if the stream was ever dropped."""
        record = self._check_format()
        if record is None or not record.was_dropped or not self._made():
            return 0
        return self._standing()[1].generation

    def note_dropping(self) -> None:
        """Record beside the table that it is about to be dropped; the commit follows."""
        note_dropping(self._layout, self.FORMAT)

    def create(self) -> None:
        """Create the empty table, also in place of a dropped one; do nothing if it exists.

        Raises:
            DamagedError: the table existed once and is missing.
            RefusedError: commits do not exclude each other at that location.
        """
        refuse_without_exclusion(self._layout.root)
        record = self._check_format()
        if not self._made():
            refuse_lost(self._layout, record, self._made)
            if record is None:
                write_format(self._layout, self.FORMAT)
            self._make()
        elif record is not None and record.was_dropped:
            self._begin_again()
        if record is None or not record.is_whole:
            note_made(self._layout, self.FORMAT)

    def _dropped_at(self) -> int:
        """The instant at which a table was dropped; 0 if it was not, or if another writer's files are in it."""
        has_files, counters = self._standing()
        return 0 if has_files else counters.dropped_ns

    def _begin_again(self) -> None:
        """Begin another table if the stream is dropped, unless another process does so first."""
        snapshot = self.snapshot()
        if not snapshot.counters.dropped_ns or snapshot.files.num_rows:
            return
        swap = Swap(
            remove=LOGGED_FILES.empty_table(),
            add=FILE_STATS.empty_table(),
            metadata={"run": f"begin-{uuid.uuid4().hex}"},
            updates=[BeginTable(snapshot.counters.epoch)],
        )
        with suppress(BusyError):
            self.commit(swap, snapshot)
            reached(Step.TABLE_BEGUN)

    def resurrected_files(self) -> tuple[Snapshot, tuple[Returned, ...]]:
        """Open the table to repair it; without writers that overlook removals, no file is resurrected."""
        return self.snapshot(), ()

    def lost_commits(self) -> tuple[Snapshot, tuple[LostCommit, ...]]:
        """Open the table to repair it; without programs that overwrite log entries, no commit is lost."""
        return self.snapshot(), ()

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Open the table once."""

    @abstractmethod
    def commit(self, swap: Swap, snapshot: Snapshot) -> int:
        """Check everything again on one handle and commit; returns the new version."""

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`; each row has its file's row number."""
        return subject_digests.subject_counts(self._layout, files, self.data_files)

    def stage(self, partition: int, segment: int) -> DataFile:
        """Stage a new file of a segment, at the location to write it."""
        return self._new(new_path(partition, segment), partition, segment)

    def stage_apart(self, partition: int, segment: int, count: int) -> tuple[DataFile, ...]:
        """Stage new files of a segment to divide rows among; each row belongs in exactly one of them."""
        kin = uuid.uuid4().hex
        paths = (new_path(partition, segment, kin) for _ in range(count))
        return tuple(self._new(path, partition, segment) for path in paths)

    def stage_merged(self, partition: int, segment: int, count: int) -> tuple[DataFile, ...]:
        """Stage new files of a segment for a merge; their names mark them, so that they are not soon merged again."""
        kin = None if count == 1 else uuid.uuid4().hex
        paths = (new_path(partition, segment, kin, merged=True) for _ in range(count))
        return tuple(self._new(path, partition, segment) for path in paths)

    def is_apart(self, file: DataFile) -> bool:
        """Whether a file is one of several that `stage_apart` staged together, or a copy of one."""
        return siblings_of(pa.array([file.path])).null_count == 0

    def stage_copy(self, source: DataFile) -> DataFile:
        """Stage a new file to replace `source`."""
        paths = pa.array([source.path])
        [kin], [merged] = siblings_of(paths).to_pylist(), merged_mask(paths).to_pylist()
        path = new_path(source.partition, source.segment, kin, merged=merged)
        return self._new(path, source.partition, source.segment)

    def _new(self, path: str, partition: int, segment: int) -> DataFile:
        refuse_without_exclusion(self._layout.root)
        location = self._place_of_new(self._staged.add(path, self._staging_claims))
        files.make_directory(location.rpartition("/")[0])
        return self._layout.data_file((path, partition, segment), location)

    def data_files(self, files: pa.Table) -> list[DataFile]:
        """The live files at their current locations."""
        return self._located(files)

    def _follow(self, counters: Counters, files: pa.Table) -> None:
        """Refuse files with row tombstones, and stage under the log's claims from now on.

        Raises:
            RefusedError: an earlier build released messages without rewriting their files.
        """
        refuse_row_tombstones(self._layout, counters.released, files)
        self._staging_claims = counters.staging_claims

    def _located(self, files: pa.Table) -> list[DataFile]:
        """The live files at their current locations, as stored."""
        check_inside(self._layout, files["path"])
        located = [
            replace(
                self._layout.data_file(row, self._place_of_live(row[0])),
                claim=claim,
                later=self._place_when_removed(row[0]),
            )
            for row, claim in zip(identities(files), expected_stats_of(files), strict=True)
        ]
        check_lengths(self._layout, files, located)
        return located

    def discard(self, paths: Sequence[str]) -> None:
        """Delete every attempt's files for those of `paths` that were staged here and are in no commit."""
        gone = [path for slot in self._staged.release(paths) for path in self._written(slot)]
        files.delete(self._place_of_new(path) for path in gone)
        files.delete(self._layout.engine_path("subjects", path) for path in gone)
        reached(Step.STAGED_DISCARDED)

    def _unclaimed(self, swap: Swap) -> Swap:
        """The swap, with the requirement that no staged file was claimed since its own were staged.

        Only the store knows the count at which it staged them, and adding the requirement here means that no writer can
        forget it.
        """
        count = self._staged.claims_of(swap.add["path"].to_pylist())
        if count is None:
            return swap
        return replace(swap, requirements=[*swap.requirements, AssertStagingClaims(count)])

    def _written(self, slot: str) -> list[str]:
        directory, _, beginning = slot.rpartition("/")
        names = files.names(self._place_of_new(directory))
        return [f"{directory}/{name}" for name in names if name.startswith(beginning)]

    def _check_format(self) -> FormatRecord | None:
        return check_format(self._layout, self.FORMAT)

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Wrap the opening of the table: refuse a missing table as lost if it existed once."""
        record = self._check_format()
        try:
            yield
        except UsageError:
            refuse_lost(self._layout, record, self._made)
            raise

    def _unchecked_doubles(self, described: pa.Table) -> int:
        """The number of files that must be opened to find duplicate messages."""
        overlapping = inventory.refuse_overlaps(self.stream, inventory.in_order(described))
        return sum(len(segment) for segment in duplicates.unchecked(self._layout, overlapping))

    def spent_notes(self, snapshot: Snapshot) -> list[str]:
        """Locations of notes beside the table on files that it no longer has."""
        if not duplicates.notes(self._layout):
            return []
        described = self._described(snapshot)
        if described is None:
            return []
        try:
            overlapping = inventory.refuse_overlaps(self.stream, inventory.in_order(described))
        except ForeignRowsError:
            # The next reader of the rows raises this error.
            return []
        return duplicates.spent_notes(self._layout, overlapping)

    @abstractmethod
    def _described(self, snapshot: Snapshot) -> pa.Table | None:
        """Statistics of all live files, shape `FILE_STATS`; None if a file must be opened for them."""

    def _now_ms(self) -> int:
        return self._clock() // 1_000_000

    @abstractmethod
    def _standing(self) -> tuple[bool, Counters]:
        """Whether an existing table has any file, and its counters; also for a table that `snapshot` refuses."""

    @abstractmethod
    def _made(self) -> bool:
        """Whether the table's log has a first entry."""

    @abstractmethod
    def _make(self) -> None:
        """Write the first entry of the table's log."""

    @abstractmethod
    def _place_of_new(self, path: str) -> str:
        """The location of a file that no commit has named yet."""

    @abstractmethod
    def _place_of_live(self, path: str) -> str:
        """The location of a live file."""

    @abstractmethod
    def _place_when_removed(self, path: str) -> str | None:
        """The location of a file after its removal; None if it does not move."""


def table_id_of(made_as: str, counters: Counters) -> str:
    """The id of a table: its log's id, or a derived one for a table that replaced a dropped one in the same log.

    A dropped table already has the id of its successor: nothing of the old table matters to the next writer.

    Args:
        made_as: the id with which the log began.
        counters: the table's counters.
    """
    generation = counters.epoch if counters.dropped_ns else counters.generation
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{made_as}/{generation}")) if generation else made_as


class _Staged:
    """The slots that one store staged and no commit has named; each attempt to fill a slot uses a new file name."""

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._claims: dict[str, int] = {}

    def add(self, path: str, claims: int) -> str:
        """Record a staged path, and the number of claims on staged files at that time."""
        self._open.add(slot_of(path))
        self._claims[slot_of(path)] = claims
        return path

    def claims_of(self, paths: Iterable[str]) -> int | None:
        """The lowest number of claims at which any of these was staged; None if none was staged here."""
        counts = (self._claims.get(slot_of(path)) for path in paths)
        return min((count for count in counts if count is not None), default=None)

    @contextmanager
    def settling(self, paths: Iterable[str]) -> Iterator[None]:
        """Wrap a commit of staged paths: they remain deletable only if it certainly did not happen."""
        named = self._open.intersection(map(slot_of, paths))
        self._open -= named
        try:
            yield
        except (CommitUnknownError, StorageError):
            raise
        except RetentionError:
            self._open |= named
            raise
        for slot in named:
            del self._claims[slot]

    def release(self, paths: Iterable[str]) -> list[str]:
        """Release and return the slots of paths that may be deleted now: staged here, and certainly in no commit."""
        gone = sorted(self._open.intersection(map(slot_of, paths)))
        self._open.difference_update(gone)
        for slot in gone:
            self._claims.pop(slot, None)
        return gone
