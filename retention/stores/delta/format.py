"""The format `delta`: a Delta table, which other programs may read, write and vacuum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from retention.errors import UsageError
from retention.ports import Store, TableStore
from retention.storage import files
from retention.stores.delta import inspect, log
from retention.stores.delta.dead_files import DeltaDeadFiles
from retention.stores.delta.old_log import DeltaOldLog
from retention.stores.delta.store import DeltaStore
from retention.stores.layout import Layout, StoreSettings, is_ours
from retention.stores.table_format import Inspection


class DeltaFormat:
    """Implements `TableFormat`."""

    keeps_versions = True
    links_archives = False
    spark_source = "delta"

    def store(
        self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]
    ) -> TableStore:
        """The store of a stream, unless deltalake could not open its location."""
        if files.is_remote(layout.root) and "%" in layout.root:
            raise UsageError(
                f"stream {layout.stream}: {layout.root} has a percent sign, which deltalake reads as an escape and so "
                "cannot open on an object store; give the stream a name of A-Z a-z 0-9 _ -"
            )
        return DeltaStore(layout, settings, clock)

    def dead_files(self, layout: Layout, store: Store) -> DeltaDeadFiles:
        """The dead files of a stream's table."""
        return DeltaDeadFiles(layout, store)

    def old_log(self, layout: Layout, version: int, cutoff_ns: int) -> DeltaOldLog:
        """The old log of a table up to a version."""
        return DeltaOldLog(layout, version, cutoff_ns)

    def inspect(self, layout: Layout, grace_ns: int) -> Inspection | None:
        """Inspect a table, and change nothing."""
        return inspect.inspect_table(layout, grace_ns)

    def orphaned_files(self, layout: Layout) -> dict[str, str]:
        """Orphaned files of the table's directory."""
        return inspect.orphaned_files(layout)

    def is_own(self, layout: Layout, path: str) -> bool:
        """Whether an orphaned file has one of our names, and a subject digest."""
        return is_ours(path) and files.length(layout.engine_path("subjects", path)) is not None

    def foreign_act(
        self, layout: Layout, after: int, names: Sequence[bytes]
    ) -> tuple[int, str] | None:
        """The first commit of another program after a version that names one of the given files."""
        return log.foreign_act(layout, after, names)

    def adoption(self, layout: Layout) -> None:
        """Return None: files of other writers are in the log."""
