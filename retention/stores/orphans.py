"""Orphan files: data files that no commit names, staged by a killed writer or by one still at work."""

from __future__ import annotations

from urllib.parse import unquote

from retention.storage import files
from retention.stores.delta import log as delta_history
from retention.stores.delta import table as delta_table
from retention.stores.delta.internals import file_actions
from retention.stores.layout import Layout
from retention.stores.parquet.log import ParquetLog

_HIDDEN = ("_", ".")


def orphaned_files(layout: Layout, format_: str) -> list[str]:
    """Locations of the stream's data files that are neither live nor removed by any commit, sorted.

    Nothing is changed, and no data file is opened.

    Raises:
        DamagedError: the log cannot be read.
    """
    return _delta(layout) if format_ == "delta" else _parquet(layout)


def _delta(layout: Layout) -> list[str]:
    paths = _data_files(layout.messages)
    named: set[str] = set()
    if delta_table.exists(layout):
        table = delta_table.open_table(layout)
        live = table.get_add_actions(flatten=True)["path"].to_pylist()
        gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=True)
        # deltalake does not yet count removals with a clock ahead of ours as tombstones.
        named = {unquote(path) for path in [*live, *gone, *_removed(layout)]}
    return [layout.live(path) for path in paths if path not in named]


def _removed(layout: Layout) -> list[str]:
    entries = delta_history.versions(layout)[0]
    return [
        fields["path"]
        for version in entries
        for kind, fields in file_actions(delta_history.read_entry(layout, version) or b"")
        if kind == "remove"
    ]


def _parquet(layout: Layout) -> list[str]:
    """Orphan files in `staging` and `trash`.

    Files in `messages/` that no commit names belong to another writer; the next process to open the table adopts them.
    """
    log = ParquetLog(layout)
    named: set[str] = set()
    if log.exists():
        named = {*log.read().files["path"].to_pylist(), *log.names_ever()}
    return [
        layout.engine_path(place, path)
        for place in ("staging", "trash")
        for path in _data_files(layout.engine_path(place))
        if path not in named
    ]


def _data_files(directory: str) -> list[str]:
    """Parquet files below a directory, relative to it, without hidden ones; sorted."""
    return [
        path
        for path in files.walk(directory)
        if path.endswith(".parquet") and not any(p.startswith(_HIDDEN) for p in path.split("/"))
    ]
