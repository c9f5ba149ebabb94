"""The log of a Delta source, read by the protocol: entries, and the state of a version from its checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from retention.errors import DamagedError, RefusedError, UsageError
from retention.ingest.sources.delta_follow import Add, Commit
from retention.storage import files
from retention.stores.delta import internals

_READ = ("add", "remove", "metaData", "protocol", "sidecar")
_DOUBTS = (ValueError, KeyError, TypeError, AttributeError)
_CATALOGS = ("catalogManaged", "catalogOwned", "catalogOwned-preview", "coordinatedCommits-preview")
"""Table features with which a log may lack entries."""


@dataclass(frozen=True)
class DeltaTableState:
    """A Delta table at a version, as far as a reader needs it."""

    version: int
    protocol: Mapping[str, object]
    metadata: Mapping[str, Any]
    live: Mapping[str, Add] = field(default_factory=dict)
    """Path → action `add` of each live file; only if the full state was read."""


@dataclass(frozen=True)
class DeltaLog:
    """The log of a source at a location that this process can read."""

    location: str

    def newest(self) -> int:
        """The newest version.

        Raises:
            UsageError: there is no Delta table.
            StorageError: the storage failed.
        """
        entries, checkpoints = internals.log_files(self.location)
        if not entries and not checkpoints:
            raise UsageError(
                f"{self.location} is not a Delta table; nothing was read; name the directory of a table and, with "
                "--source-format, what it is"
            )
        return max([*entries, *checkpoints])

    def seal(self, version: int) -> str:
        """A digest of a version's entry; empty if the log no longer has it."""
        entry = internals.read_entry(self.location, version)
        return "" if entry is None else hashlib.sha256(entry).hexdigest()

    def state(self, version: int) -> DeltaTableState:
        """The table at a version.

        Raises:
            DamagedError: the log cannot be read, or has a gap.
        """
        replay = _Replay()
        start = 0
        for checkpointed, places in internals.whole_checkpoints(self.location, version):
            try:
                for kind, fields in chain.from_iterable(map(self._of_checkpoint, places)):
                    replay.act(kind, fields)
            except (OSError, pa.ArrowException, *_DOUBTS):
                replay = _Replay()
                continue
            start = checkpointed + 1
            break
        for number in range(start, version + 1):
            for kind, fields in self._actions(number):
                replay.act(kind, fields)
        return replay.state(self.location, version)

    def missing(self, after: int, until: int) -> bool:
        """Whether entries of versions after `after`, up to and including `until`, are missing from the log."""
        there = {version for version in internals.log_files(self.location)[0] if version > after}
        return not there.issuperset(range(after + 1, until + 1))

    def commits(self, after: int, until: int) -> list[Commit]:
        """The commits of versions after `after`, up to and including `until`.

        Raises:
            DamagedError: an entry is missing or cannot be read.
        """
        return [self._commit(version) for version in range(after + 1, until + 1)]

    def _commit(self, version: int) -> Commit:
        actions = self._actions(version)
        last = dict(actions)
        info = last.get("commitInfo", {})
        return Commit(
            version,
            [fields for kind, fields in actions if kind == "add"],
            [fields for kind, fields in actions if kind == "remove"],
            str(info.get("operation", "a commit")),
            str(info.get("engineInfo") or info.get("clientVersion") or "another program"),
            last.get("protocol"),
            last.get("metaData"),
        )

    def _actions(self, version: int) -> list[tuple[str, Any]]:
        entry = internals.read_entry(self.location, version)
        place = internals.entry_place(self.location, version)
        if entry is None:
            raise DamagedError(
                f"{place}: this entry of the source's log is missing; nothing was read; restore it from a copy"
            )
        try:
            return list(internals.actions(entry))
        except _DOUBTS as error:
            raise DamagedError(
                f"{place}: this entry of the source's log cannot be read ({error}); nothing was read; restore it "
                "from a copy"
            ) from error

    def _of_checkpoint(self, place: str) -> Iterator[tuple[str, Any]]:
        """The actions of a checkpoint file and of its sidecar files."""
        if place.endswith(".json"):
            actions = list(internals.actions(files.read_bytes(place) or b""))
        else:
            actions = list(_of_parquet(place))
        for kind, fields in actions:
            if kind == "sidecar":
                name = str(fields["path"]).rpartition("/")[2]
                yield from _of_parquet(
                    files.join(internals.log_directory(self.location), "_sidecars", name)
                )
            else:
                yield kind, fields


def _of_parquet(place: str) -> Iterator[tuple[str, object]]:
    with files.open_input(place) as source:
        opened = pq.ParquetFile(source)
        present = [name for name in _READ if name in opened.schema_arrow.names and name != "remove"]
        for name in present:
            for row in opened.read([name])[name].drop_null().to_pylist(maps_as_pydicts="strict"):
                yield name, _as_logged(row)


def _as_logged(row: dict[str, Any]) -> dict[str, object]:
    """A checkpoint's row in the form of a log entry: nulls omitted, statistics as text."""
    stats = row.get("stats")
    parsed = row.pop("stats_parsed", None)
    if stats is None and parsed and parsed.get("numRecords") is not None:
        row["stats"] = json.dumps({"numRecords": parsed["numRecords"]})
    row.pop("partitionValues_parsed", None)
    return {name: value for name, value in row.items() if value is not None}


class _Replay:
    """Actions replayed in order."""

    def __init__(self) -> None:
        self._live: dict[str, Add] = {}
        self._last: dict[str, Mapping[str, object]] = {}

    def act(self, kind: str, fields: Mapping[str, Any]) -> None:
        if kind == "add":
            self._live[fields["path"]] = fields
        elif kind == "remove":
            known = self._live.get(fields["path"])
            if known is not None and _vector_id(known) == _vector_id(fields):
                del self._live[fields["path"]]
        elif kind in ("metaData", "protocol"):
            self._last[kind] = fields

    def state(self, location: str, version: int) -> DeltaTableState:
        if {"metaData", "protocol"} - self._last.keys():
            raise DamagedError(
                f"{location}: its log does not have the table's columns at version {version}: entries or a "
                "checkpoint are missing; nothing was read; restore them from a copy"
            )
        return DeltaTableState(version, self._last["protocol"], self._last["metaData"], self._live)


def _vector_id(action: Mapping[str, Any]) -> tuple[object, ...] | None:
    vector = action.get("deletionVector")
    return (
        None
        if not vector
        else tuple(vector.get(name) for name in ("storageType", "pathOrInlineDv", "offset"))
    )


def refuse_catalogs(location: str, protocol: Mapping[str, Any]) -> None:
    """Refuse a table if its log alone does not determine its content.

    Raises:
        RefusedError: its commits go through a catalog.
    """
    named = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    for feature in _CATALOGS:
        if feature in named:
            raise RefusedError(
                f"{location}: a catalog keeps this table's newest commits (table feature {feature}), and its log alone "
                "does not have them; nothing was read; append a DataFrame of it, read through the catalog"
            )
