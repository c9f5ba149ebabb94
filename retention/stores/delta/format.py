"""The format `delta`: a Delta table, which other programs may read, write and vacuum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from retention.core.vector_paths import all_stored, stored_files
from retention.errors import UsageError
from retention.ports import Store, UnopenedTable
from retention.storage import files
from retention.stores.delta import internals
from retention.stores.delta import log as delta_history
from retention.stores.delta.table_log import exists
from retention.stores.delta.unopened import UnopenedDeltaTable
from retention.stores.layout import Layout, StoreSettings, check_format, data_paths, is_ours

if TYPE_CHECKING:
    from retention.stores.delta.dead_files import DeltaDeadFiles
    from retention.stores.delta.old_log import DeltaOldLog
    from retention.stores.table_format import Inspection


class DeltaFormat:
    """Implements `TableFormat`."""

    keeps_versions = True
    refuses_new_counters = False
    spark_source = "delta"

    def table(
        self, layout: Layout, settings: StoreSettings, clock: Callable[[], int]
    ) -> UnopenedTable:
        """The table of a stream, unless deltalake could not open its location."""
        if files.is_remote(layout.root) and "%" in layout.root:
            raise UsageError(
                f"stream {layout.stream}: {layout.root} has a percent sign, which deltalake reads as an escape and so "
                "cannot open on an object store; give the stream a name of A-Z a-z 0-9 _ -"
            )
        return UnopenedDeltaTable(layout, settings, clock)

    def dead_files(self, layout: Layout, store: Store) -> DeltaDeadFiles:
        """The dead files of a stream's table."""
        from retention.stores.delta.dead_files import DeltaDeadFiles

        return DeltaDeadFiles(layout, store)

    def old_log(self, layout: Layout, version: int, cutoff_ns: int) -> DeltaOldLog:
        """The old log of a table up to a version."""
        from retention.stores.delta.old_log import DeltaOldLog

        return DeltaOldLog(layout, version, cutoff_ns)

    def forget_log(self, layout: Layout) -> list[str]:
        """Delete the log before its newest version; a checkpoint replaces it."""
        from retention.stores.delta.forget_log import forget_log

        return forget_log(layout)

    def inspect(self, layout: Layout, grace_ns: int) -> Inspection | None:
        """Inspect a table, and change nothing."""
        from retention.schemas.files import LOGGED_FILES
        from retention.stores.checks import inventory, number_bounds
        from retention.stores.checks.presence import refuse_lost
        from retention.stores.delta import properties
        from retention.stores.delta import table as delta_table
        from retention.stores.delta.commit_tokens import refuse_lost as refuse_lost_commits
        from retention.stores.delta.returned import refuse_returned
        from retention.stores.file_store import table_id_of
        from retention.stores.sidecar.stats_cache import StatisticsCache
        from retention.stores.table_format import Inspection

        record = check_format(layout, "delta")
        if not exists(layout):
            refuse_lost(layout, record, lambda: False)
            return None
        handle, live = delta_table.read_handle(layout)
        refuse_lost_commits(layout)
        refuse_returned(layout, handle.table.version)
        inventory.refuse_nulls(layout, live)
        number_bounds.refuse_impossible(layout, live)
        number_bounds.refuse_counters(layout, inventory.effective(handle.logged, live))
        logged = live.select(LOGGED_FILES.names)
        described, missing = StatisticsCache(layout, lambda: 0).match(logged)
        inventory.refuse_known_overlaps(layout.stream, live)
        return Inspection(
            handle.table.version,
            logged,
            [layout.live(path) for path in logged["path"].to_pylist()],
            missing.num_rows,
            live,
            described,
            handle.logged,
            table_id_of(handle.table_id, handle.logged),
            {path: vector["cardinality"] for path, vector in handle.vectors.items()},
            vectors=len(handle.unreadable),
            grace=properties.differing(handle.table, grace_ns),
            grace_statement=properties.owners_statement(layout, handle.table, grace_ns),
        )

    def committed_runs(self, layout: Layout) -> dict[int, frozenset[str]]:
        """Version → the runs that its entry names; an entry of another program names none."""
        versions = delta_history.versions(layout)[0]
        contents = delta_history.read_entries(layout, versions)
        return {
            version: delta_history.runs_in(layout, version, content or b"")
            for version, content in zip(versions, contents, strict=True)
        }

    def orphaned_files(self, layout: Layout) -> dict[str, str]:
        """Orphaned files of the table's directory."""
        from retention.stores.delta import table as delta_table

        paths = data_paths(layout.messages)
        named: set[str] = set()
        if exists(layout):
            live = delta_table.open_table(layout).files["path"].to_pylist()
            table = delta_table.for_deltalake(layout)
            gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
            # deltalake does not yet count removals with a clock ahead of ours as tombstones.
            named = {unquote(path) for path in [*live, *gone, *_removed(layout)]}
            vectors = [name for name in files.names(layout.messages) if name.endswith(".bin")]
            named |= _named_vectors(layout) if vectors else set()
            paths += vectors
        return {layout.live(path): path for path in paths if path not in named}

    def is_own(self, layout: Layout, path: str) -> bool:
        """Whether an orphaned file has one of our names, and a subject digest."""
        if path.endswith(".bin"):
            digests = files.walk(layout.engine_path("subjects"))
            return any(path in stored_files(digest) for digest in digests)
        return is_ours(path) and files.length(layout.engine_path("subjects", path)) is not None

    def foreign_act(
        self, layout: Layout, after: int, names: Sequence[bytes]
    ) -> tuple[int, str] | None:
        """The first commit of another program after a version that names one of the given files."""
        return delta_history.foreign_act(layout, after, names)

    def adoption(self, layout: Layout) -> None:
        """Return None: files of other writers are in the log."""


def _named_vectors(layout: Layout) -> set[str]:
    """The files of vectors that the table or an entry of its log names."""
    from retention.stores.delta.table import read_handle

    handle, _ = read_handle(layout)
    versions = delta_history.versions(layout)[0]
    entries = delta_history.read_entries(layout, versions)
    named = all_stored(handle.vectors).union(
        *(internals.paths_in(entry or b"") for entry in entries)
    )
    return {path for path in named if path.endswith(".bin")}


def _removed(layout: Layout) -> list[str]:
    entries = delta_history.versions(layout)[0]
    return [
        fields["path"]
        for version in entries
        for kind, fields in internals.file_actions(delta_history.read_entry(layout, version) or b"")
        if kind == "remove"
    ]
