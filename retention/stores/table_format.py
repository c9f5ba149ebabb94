"""A table format: the operations on a stream's table that differ between Delta and plain Parquet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from retention.core.counters import Counters
from retention.ports import Store, UnopenedTable
from retention.storage import files
from retention.stores.dead_files import DeadFiles
from retention.stores.layout import Layout, StoreSettings
from retention.stores.old_log import OldLog


@dataclass(frozen=True)
class Unfit:
    """A file of another writer that a stream cannot adopt."""

    path: str
    """Relative to `messages/`."""
    reason: str


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
    logged: pa.Table
    """The live files with the statistics that the log has, columns of `EXPECTED_COLUMNS` or fewer; in that order."""
    described: pa.Table
    """The files whose statistics are known in full, shape `FILE_STATS`, in no particular order."""
    counters: Counters
    """The counters in the log."""
    table_id: str
    hidden: Mapping[str, int] = field(default_factory=dict)
    """Path of each file under a deletion vector → the number of rows that the log says it hides."""
    vectors: int = 0
    """The number of files with rows hidden by another writer's deletion vectors."""
    unmoved: int = 0
    """The number of commits with unfinished file moves."""
    unfit: Sequence[Unfit] = ()
    """Files of other writers that the stream cannot adopt."""
    grace: Mapping[str, str] = field(default_factory=dict)
    """Table properties that differ from the configuration's grace, with the configured values."""
    grace_statement: str | None = None
    """The SQL that sets these properties if only the table's owner can; None if a run sets them."""

    def wrong_lengths(self) -> list[tuple[str, int | None, int]]:
        """Missing files and wrong lengths: location, current length (None if missing), committed length."""
        lengths = files.lengths(self.locations)
        logged = self.files["file_bytes"].to_pylist()
        rows = zip(self.locations, lengths, logged, strict=True)
        return [row for row in rows if row[1] != row[2]]


class Adoption(Protocol):
    """The files that other writers put into the table's directory, where the log names them only once adopted."""

    def unfit_files(self) -> list[Unfit]:
        """The files that the stream cannot adopt, sorted by path; nothing is changed.

        Raises:
            DamagedError: the log cannot be read.
        """
        ...

    def move_aside(self, run: str, paths: Sequence[str]) -> None:
        """Move files that no log entry names to a run's directory; live files are not moved."""
        ...


class TableFormat(Protocol):
    """A table format. Implementations: `stores.delta.format`, `stores.parquet.format`."""

    @property
    def keeps_versions(self) -> bool:
        """Whether readers may open earlier versions, so that no removed file may be deleted before its grace."""
        ...

    @property
    def refuses_new_counters(self) -> bool:
        """Whether earlier releases refuse the log's entries with counters that they do not know."""
        ...

    @property
    def spark_source(self) -> str | None:
        """The data source with which Spark reads the table's directory; None: it reads the live files by name."""
        ...

    def table(
        self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]
    ) -> UnopenedTable:
        """The table of a stream; no file is touched until one of its methods is called.

        Raises:
            UsageError: the format is not safe at that location.
        """
        ...

    def dead_files(self, layout: Layout, store: Store) -> DeadFiles:
        """The dead files of a stream's table."""
        ...

    def old_log(self, layout: Layout, version: int, cutoff_ns: int) -> OldLog:
        """The old log of a table up to a version.

        Args:
            layout: the stream's layout.
            version: later entries are ignored.
            cutoff_ns: entries written at that instant or later are kept, nanoseconds since the epoch.
        """
        ...

    def forget_log(self, layout: Layout) -> list[str]:
        """Delete what the log has of earlier versions and may repeat values of removed messages; the locations.

        Raises:
            DamagedError, StorageError: the log cannot be read, or the storage failed.
        """
        ...

    def inspect(self, layout: Layout, grace_ns: int) -> Inspection | None:
        """Inspect a table, and change nothing; None if nothing was ever written.

        Raises:
            RefusedError: the engine does not handle a table feature or property.
            ForeignRowsError: files of another writer break the storage rules, as far as their statistics tell.
            DamagedError: the log cannot be read, or is lost.
        """
        ...

    def committed_runs(self, layout: Layout) -> dict[int, frozenset[str]]:
        """Version → the runs that its entry names, for every entry that the log still has; each is read in full.

        Raises:
            DamagedError: an entry cannot be read.
        """
        ...

    def orphaned_files(self, layout: Layout) -> dict[str, str]:
        """Location → path of the data files that are neither live nor removed by any commit, sorted.

        Nothing is changed, and no data file is opened.

        Raises:
            DamagedError: the log cannot be read.
        """
        ...

    def is_own(self, layout: Layout, path: str) -> bool:
        """Whether this program wrote an orphaned file; of others, the directory may have files as well."""
        ...

    def foreign_act(
        self, layout: Layout, after: int, names: Sequence[bytes]
    ) -> tuple[int, str] | None:
        """The first commit of another program after a version that names one of the given files.

        Its version and a description; None if there is none, or its entry was removed.
        """
        ...

    def adoption(self, layout: Layout) -> Adoption | None:
        """The files of other writers; None: only the log says which files the table has."""
        ...
