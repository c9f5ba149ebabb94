"""Read-only inspection of a Parquet stream: live, foreign and orphaned files, and unfinished moves."""

from __future__ import annotations

from retention.schemas.files import LOGGED_FILES
from retention.stores.checks import inventory, number_bounds
from retention.stores.checks.presence import refuse_lost
from retention.stores.layout import Layout, check_format, data_paths
from retention.stores.parquet.adopt import unfit_files
from retention.stores.parquet.log import ParquetLog, before_first_entry
from retention.stores.parquet.settle_files import Places
from retention.stores.table_format import Inspection


def inspect_table(layout: Layout) -> Inspection | None:
    """Inspect a table, as `TableFormat.inspect`."""
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
    unfit = unfit_files(layout)
    inventory.refuse_known_overlaps(layout.stream, state.files)
    return Inspection(
        state.version,
        state.files.select(LOGGED_FILES.names),
        [places.find(path) for path in state.files["path"].to_pylist()],
        len(foreign) - len(unfit),
        unmoved=places.unfinished(state),
        unfit=unfit,
    )


def orphaned_files(layout: Layout) -> dict[str, str]:
    """Orphaned files in `staging` and `trash`, as `TableFormat.orphaned_files`.

    Files in `messages/` that no commit names belong to another writer; the next process to open the table adopts them.
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
