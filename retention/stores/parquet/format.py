"""The format `parquet`: plain Parquet files on a disk, with a log of the engine's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from retention.errors import UsageError
from retention.ports import Store, TableStore
from retention.schemas.files import LOGGED_FILES
from retention.storage import files
from retention.stores.checks import inventory, number_bounds
from retention.stores.checks.presence import refuse_lost
from retention.stores.file_store import table_id_of
from retention.stores.layout import Layout, StoreSettings, check_format, data_paths
from retention.stores.parquet import adopt
from retention.stores.parquet.dead_files import ParquetDeadFiles
from retention.stores.parquet.log import ParquetLog, before_first_entry
from retention.stores.parquet.old_log import ParquetOldLog
from retention.stores.parquet.settle_files import Places
from retention.stores.parquet.store import ParquetStore
from retention.stores.table_format import Inspection, Unfit


class ParquetFormat:
    """Implements `TableFormat`."""

    keeps_versions = False
    refuses_new_counters = True
    spark_source = None

    def table(
        self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]
    ) -> TableStore:
        """The table of a stream on a disk."""
        if files.is_remote(layout.root):
            raise UsageError(
                f"stream {layout.stream}: format parquet is not possible at {layout.root}: an object store cannot "
                "rename, so a plain reader of the directory could see half a run; use format: delta"
            )
        return ParquetStore(layout, settings, clock)

    def dead_files(self, layout: Layout, store: Store) -> ParquetDeadFiles:
        """The dead files of a stream."""
        return ParquetDeadFiles(layout)

    def old_log(self, layout: Layout, version: int, cutoff_ns: int) -> ParquetOldLog:
        """The old log of a stream up to a version."""
        return ParquetOldLog(layout, version, cutoff_ns)

    def forget_log(self, layout: Layout) -> list[str]:
        """Delete nothing: entries and listings have names and numbers, never values of messages."""
        del layout
        return []

    def inspect(self, layout: Layout, grace_ns: int) -> Inspection | None:
        """Inspect a stream, and change nothing; only the configuration sets a grace."""
        record = check_format(layout, "parquet")
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
        unfit = adopt.unfit_files(layout)
        inventory.refuse_known_overlaps(layout.stream, state.files)
        return Inspection(
            state.version,
            state.files.select(LOGGED_FILES.names),
            [places.find(path) for path in state.files["path"].to_pylist()],
            len(foreign) - len(unfit),
            state.files,
            state.files,
            state.counters,
            table_id_of(state.table_id, state.counters),
            unmoved=places.unfinished(state),
            unfit=unfit,
        )

    def committed_runs(self, layout: Layout) -> dict[int, frozenset[str]]:
        """Version → the run that its entry names."""
        log = ParquetLog(layout)
        runs = {version: log.entry(version).run for version in sorted(log.times()[0])}
        return {v: frozenset([] if run is None else [str(run)]) for v, run in runs.items()}

    def orphaned_files(self, layout: Layout) -> dict[str, str]:
        """Orphaned files in `staging` and `trash`.

        Files in `messages/` that no commit names belong to another writer; the next process to open the table adopts
        them.
        """
        log = ParquetLog(layout)
        named: set[str] = set()
        if log.exists():
            named = {*log.read().files["path"].to_pylist(), *log.names_ever()}
        return {
            layout.engine_path(place, path): path
            for place in ("staging", "trash")
            for path in data_paths(layout.engine_path(place))
            if path not in named
        }

    def is_own(self, layout: Layout, path: str) -> bool:
        """Return True: no other program writes to `staging` and `trash`."""
        return True

    def foreign_act(
        self, layout: Layout, after: int, names: Sequence[bytes]
    ) -> tuple[int, str] | None:
        """Return None: no other program commits to the log."""
        return None

    def adoption(self, layout: Layout) -> ForeignFiles:
        """The files of other writers in `messages/`."""
        return ForeignFiles(layout)


@dataclass(frozen=True)
class ForeignFiles:
    """Implements `Adoption`."""

    layout: Layout

    def unfit_files(self) -> list[Unfit]:
        """The files that the stream cannot adopt."""
        return adopt.unfit_files(self.layout)

    def move_aside(self, run: str, paths: Sequence[str]) -> None:
        """Move files that no log entry names to a run's directory."""
        adopt.move_aside(self.layout, run, paths)
