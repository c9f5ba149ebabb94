"""Read-only inspection of a Delta table: live files, orphaned files, and differing properties."""

from __future__ import annotations

from urllib.parse import unquote

from retention.schemas.files import LOGGED_FILES
from retention.stores.checks import inventory, number_bounds
from retention.stores.checks.presence import refuse_lost
from retention.stores.delta import internals, properties
from retention.stores.delta import log as delta_history
from retention.stores.delta import table as delta_table
from retention.stores.delta.commit_tokens import refuse_lost as refuse_lost_commits
from retention.stores.delta.returned import refuse_returned
from retention.stores.layout import Layout, check_format, data_paths
from retention.stores.sidecar.stats_cache import StatisticsCache
from retention.stores.table_format import Inspection


def inspect_table(layout: Layout, grace_ns: int) -> Inspection | None:
    """Inspect a table, as `TableFormat.inspect`."""
    record = check_format(layout, "delta")
    if not delta_table.exists(layout):
        refuse_lost(layout, record, lambda: False)
        return None
    handle, live = delta_table.read_handle(layout)
    refuse_lost_commits(layout)
    refuse_returned(layout, handle.table.version())
    inventory.refuse_nulls(layout, live)
    number_bounds.refuse_impossible(layout, live)
    number_bounds.refuse_counters(layout, inventory.effective(handle.logged, live))
    logged = live.select(LOGGED_FILES.names)
    _, missing = StatisticsCache(layout, lambda: 0).match(logged)
    inventory.refuse_known_overlaps(layout.stream, live)
    return Inspection(
        handle.table.version(),
        logged,
        [layout.live(path) for path in logged["path"].to_pylist()],
        missing.num_rows,
        vectors=len(handle.vectors),
        grace=properties.differing(handle.table, grace_ns),
        grace_statement=properties.owners_statement(layout, handle.table, grace_ns),
    )


def orphaned_files(layout: Layout) -> dict[str, str]:
    """Orphaned files of the table's directory, as `TableFormat.orphaned_files`."""
    paths = data_paths(layout.messages)
    named: set[str] = set()
    if delta_table.exists(layout):
        table = delta_table.open_table(layout)
        live = table.get_add_actions(flatten=True)["path"].to_pylist()
        gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
        # deltalake does not yet count removals with a clock ahead of ours as tombstones.
        named = {unquote(path) for path in [*live, *gone, *_removed(layout)]}
    return {layout.live(path): path for path in paths if path not in named}


def _removed(layout: Layout) -> list[str]:
    entries = delta_history.versions(layout)[0]
    return [
        fields["path"]
        for version in entries
        for kind, fields in internals.file_actions(delta_history.read_entry(layout, version) or b"")
        if kind == "remove"
    ]
