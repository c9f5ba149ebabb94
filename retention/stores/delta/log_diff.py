"""The changes in a Delta log after a known version, if its entries only add and remove files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from retention.core.counter_names import NEXT_SEQ, OPEN_BASE
from retention.core.counters import EPOCH
from retention.core.record_tables import outside_mask
from retention.ports import VersionToken
from retention.schemas.files import LOGGED_FILES
from retention.storage import files
from retention.stores.delta import log as delta_history
from retention.stores.delta.internals import actions
from retention.stores.delta.vector_files import path_of, statistics
from retention.stores.layout import Layout
from retention.stores.seals import seal_of

MOST_ENTRIES = 1_000
MOST_BYTES = 64 * 2**20
_COUNTERS = (NEXT_SEQ, OPEN_BASE)
_BOUNDS = ("seq", "ts_ns", "size")
_REQUIRED = ("seq", "subject", "ts_ns", "size")
_STATISTICS = (
    "messages",
    *(f"{bound}_{name}" for bound in ("min", "max") for name in _BOUNDS),
    *(f"nulls_{name}" for name in _REQUIRED),
)
_LOGGED = pa.schema([*LOGGED_FILES, *(pa.field(name, pa.int64()) for name in _STATISTICS)])


@dataclass
class Changes:
    """The net effect of log entries on the files before them.

    If b is live, an entry adds a, and the next removes a and b, the result is `removed` b and `passing` a.
    """

    removed: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Removed paths that were live before → partition and segment."""
    passing: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Paths that were added and removed again → partition and segment."""
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Added paths that are live now → rows of `LOGGED_FILES`, with further statistics from the log."""
    counters: dict[str, dict[int, int]] = field(
        default_factory=lambda: {name: {} for name in _COUNTERS}
    )

    @property
    def logged(self) -> pa.Table:
        """The added files: `LOGGED_FILES`, and any statistics in the log."""
        return pa.Table.from_pylist(list(self.added.values()), schema=_LOGGED)


def changes(layout: Layout, before: VersionToken, now: VersionToken) -> Changes | None:
    """The changes between two versions of a table; None if entries are missing, too many, or of another kind.

    None also if the entry at either end no longer matches its version token.

    Only adding files, removing files and raising counters are supported. Other kinds are changes of the table's
    properties or features, deletion vectors that only Spark can read, removals of files that are not live, and a purge
    that begins an epoch; for those the table itself must be opened and examined.
    """
    wanted = range(before.version + 1, now.version + 1)
    if (
        not 0 < len(wanted) <= MOST_ENTRIES
        or delta_history.version_token_of(layout, before.version) != replace(before, wants="")
        or before.wants != now.wants
    ):
        return None
    lengths = files.lengths([delta_history.place_of(layout, version) for version in wanted])
    if None in lengths or sum(length or 0 for length in lengths) > MOST_BYTES:
        return None
    entries = list(delta_history.read_entries(layout, wanted))
    if seal_of(entries[-1] or b"") != now.seal:
        return None
    diff = Changes()
    try:
        for entry in entries:
            _replay(diff, entry or b"")
    except (ValueError, KeyError, TypeError, AttributeError):
        # Opening the table decides about entries that cannot be parsed here.
        return None
    named = pa.array([*diff.removed, *diff.added], pa.string())
    return None if any(outside_mask(named).to_pylist()) else diff


def logged_rows(adds: Iterable[Mapping[str, object]]) -> pa.Table:
    """The files of `add` actions: `LOGGED_FILES`, and any statistics in the log.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: an action cannot be parsed.
    """
    return pa.Table.from_pylist([_row(fields) for fields in adds], schema=_LOGGED)


def _replay(diff: Changes, entry: bytes) -> None:
    removes, adds = {}, {}
    for kind, fields in actions(entry):
        if kind == "add":
            row = _row(fields)
            adds[row["path"]] = row
        elif kind == "remove":
            removes[_path(fields)] = _place(fields)
        elif kind == "txn":
            _raise(diff.counters, fields["appId"], fields["version"])
        elif kind != "commitInfo":
            raise ValueError(kind)
    gone = (diff.removed.keys() | diff.passing.keys()) - diff.added.keys()
    if not entry.strip() or removes.keys() & (adds.keys() | gone):
        raise ValueError
    for path, place in removes.items():
        passing = diff.added.pop(path, None) is not None
        (diff.passing if passing else diff.removed)[path] = place
    diff.added |= adds


def _path(fields: Mapping[str, Any]) -> str:
    path = path_of(fields)
    if path is None:
        raise ValueError
    return path


def _place(fields: Mapping[str, Any]) -> tuple[int, int]:
    values = fields["partitionValues"]
    return int(values["partition"]), int(values["segment"])


def _row(fields: Mapping[str, Any]) -> dict[str, Any]:
    partition, segment = _place(fields)
    known = statistics(fields)
    lowest, highest = known.get("minValues", {}), known.get("maxValues", {})
    nulls = known.get("nullCount", {})
    return {
        "path": _path(fields),
        "partition": partition,
        "segment": segment,
        "file_bytes": int(fields["size"]),
        "modified_ms": int(fields["modificationTime"]),
        "messages": known.get("numRecords"),
        **{f"min_{name}": lowest.get(name) for name in _BOUNDS},
        **{f"max_{name}": highest.get(name) for name in _BOUNDS},
        **{f"nulls_{name}": nulls.get(name) for name in _REQUIRED},
    }


def _raise(counters: dict[str, dict[int, int]], name: str, version: int) -> None:
    kind, _, key = name.partition("/")
    if name == EPOCH:
        raise ValueError(name)
    if kind == EPOCH:
        # The current epoch: none of the entries begins another one.
        kind, _, key = key.partition("/")[2].partition("/")
    if kind in _COUNTERS:
        counters[kind][int(key)] = max(version, counters[kind].get(int(key), 0))
