"""The format `parquet`: plain Parquet files on a disk, with a log of the engine's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from retention.errors import UsageError
from retention.ports import Store, TableStore
from retention.storage import files
from retention.stores.layout import Layout, StoreSettings
from retention.stores.parquet import adopt, inspect
from retention.stores.parquet.dead_files import ParquetDeadFiles
from retention.stores.parquet.old_log import ParquetOldLog
from retention.stores.parquet.store import ParquetStore
from retention.stores.table_format import Inspection, Unfit


class ParquetFormat:
    """Implements `TableFormat`."""

    keeps_versions = False
    links_archives = True
    spark_source = None

    def store(
        self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]
    ) -> TableStore:
        """The store of a stream on a disk."""
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

    def inspect(self, layout: Layout, grace_ns: int) -> Inspection | None:
        """Inspect a stream, and change nothing; only the configuration sets a grace."""
        return inspect.inspect_table(layout)

    def orphaned_files(self, layout: Layout) -> dict[str, str]:
        """Orphaned files in `staging` and `trash`."""
        return inspect.orphaned_files(layout)

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
