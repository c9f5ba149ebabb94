"""Snapshots of a Delta table: the newest checkpoint and the entries after it, replayed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from retention.delta import entries, log_files
from retention.delta.checkpoints import read_checkpoint
from retention.delta.entries import Action, SplitEntry
from retention.delta.file_actions import parse_entries, reconcile
from retention.delta.protocol_versions import implied_features
from retention.delta.shapes import LIVE_FILES, OF_ADD, STATS_PARSED
from retention.delta.typed_statistics import as_json
from retention.errors import DamagedError, UsageError
from retention.schemas.empty import empty_table
from retention.storage import files

IN_COMMIT_TIMES = "delta.enableInCommitTimestamps"
"""The property of a table with entries that have their own time."""


@dataclass(frozen=True)
class DeltaSnapshot:
    """A table at one version."""

    root: str
    version: int
    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    files: pa.Table
    """Shape `LIVE_FILES`; with `stats_parsed` if some files have their statistics only there. In no order."""
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Domain → its `domainMetadata`, unless removed."""
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Application id → version of its last transaction."""
    in_commit_ms: int | None = None
    """The newest time that an entry has for itself, milliseconds since the epoch; None if none has."""
    stamp: tuple[int, int] | None = None
    """Length and modification time of this version's entry when it was read; None without one."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.get("configuration") or {}

    @cached_property
    def features(self) -> frozenset[str]:
        """The features of the table's protocol, named or implied by its versions; not all need be in use."""
        return frozenset(
            {
                *(self.protocol.get("readerFeatures") or ()),
                *(self.protocol.get("writerFeatures") or ()),
                *implied_features(self.protocol["minWriterVersion"]),
            }
        )

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The table's schema as Delta has it: a struct with `fields`."""
        return json.loads(self.metadata["schemaString"])

    @property
    def partition_names(self) -> set[str]:
        """The physical names of the partition columns."""
        return entries.partition_names([{"metaData": self.metadata}])

    def is_set(self, name: str) -> bool:
        """Whether a property of the table is true."""
        return str(self.properties.get(name, "")).lower() == "true"

    def add_of(self, row: int) -> dict[str, Any]:
        """The fields of the `add` action of the file in a row of `files`."""
        return self.adds_of([row])[0]

    def adds_of(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """The fields of the `add` actions of the files in some rows of `files`."""
        taken = self.files.take(pa.array(rows, pa.int64())).select(LIVE_FILES.names)
        each = taken.to_pylist(maps_as_pydicts="lossy")
        return [self._add(row, values) for row, values in zip(rows, each, strict=True)]

    def _add(self, row: int, values: Mapping[str, Any]) -> dict[str, Any]:
        add = {
            name: values[column] for column, name in OF_ADD.items() if values[column] is not None
        }
        add.setdefault("partitionValues", {})
        if "stats" not in add and STATS_PARSED in self.files.schema.names:
            add["stats"] = as_json(self.files[STATS_PARSED][row])
        if "deletionVector" in add:
            vector = add["deletionVector"]
            add["deletionVector"] = {key: vector[key] for key in vector if vector[key] is not None}
        return {**add, "dataChange": True}


def read(root: str, version: int | None = None) -> DeltaSnapshot:
    """Read a table at a version, the newest by default.

    Raises:
        UsageError: there is no table, or no such version of it.
        DamagedError: an entry or a checkpoint is missing or cannot be read.
        StorageError: the storage failed.
    """
    listing = log_files.list_log(root)
    versions = listing.entries | listing.checkpoints.keys()
    if not versions:
        raise UsageError(
            f"{root}: this is no Delta table: it has no log; correct the location, let its writer create it, or list a "
            "directory of Parquet files with `format: parquet`"
        )
    wanted = max(versions) if version is None else version
    start = max((number for number in listing.checkpoints if number <= wanted), default=None)
    if wanted > max(versions) or (start is None and 0 not in versions):
        raise UsageError(
            f"{root}: the table's log has no version {wanted}: {_extent(listing)}; choose another version"
        )
    if start is None:
        before = DeltaSnapshot(root, -1, {}, {}, empty_table(LIVE_FILES))
    else:
        before = _of_checkpoint(root, start, listing.checkpoints[start])
    first = before.version + 1
    return stamped(after(before, [_entry(root, number) for number in range(first, wanted + 1)]))


def _extent(listing: log_files.LogListing) -> str:
    """The versions that a log can tell of, in words."""
    firsts = [*listing.checkpoints, *({0} & listing.entries)]
    if not firsts:
        return "it begins with neither a checkpoint nor the first entry"
    return f"it has {min(firsts)} to {max(listing.entries | listing.checkpoints.keys())}"


def advance(snapshot: DeltaSnapshot) -> DeltaSnapshot:
    """The table at its newest version; reads only the entries after the snapshot's, unless the log was replaced.

    Raises:
        UsageError, DamagedError, StorageError: as `read`.
    """
    if not is_current(snapshot):
        return read(snapshot.root)
    newer = newer_entries(snapshot)
    return stamped(after(snapshot, newer)) if newer else snapshot


def is_current(snapshot: DeltaSnapshot) -> bool:
    """Whether the entry of a snapshot's version is there, and still the one that was read."""
    return stamped(snapshot).stamp == snapshot.stamp is not None


def stamped(snapshot: DeltaSnapshot) -> DeltaSnapshot:
    """The snapshot with the stamp that its version's entry has now."""
    try:
        stamp = files.stat(log_files.entry_place(snapshot.root, snapshot.version))
    except (FileNotFoundError, NotADirectoryError):
        stamp = None
    return replace(snapshot, stamp=stamp)


def newer_entries(snapshot: DeltaSnapshot) -> list[bytes]:
    """The entries after a snapshot's version, in order."""
    newer: list[bytes] = []
    while True:
        place = log_files.entry_place(snapshot.root, snapshot.version + len(newer) + 1)
        content = files.read_unchanging(place)
        if content is None:
            return newer
        newer.append(content)


def after(snapshot: DeltaSnapshot, contents: Sequence[bytes]) -> DeltaSnapshot:
    """The table after the entries of the versions that follow a snapshot.

    Raises:
        DamagedError: an entry cannot be read.
    """
    if not contents:
        return snapshot
    versions = range(snapshot.version + 1, snapshot.version + 1 + len(contents))
    places = [log_files.entry_place(snapshot.root, version) for version in versions]
    split = [entries.split(*each) for each in zip(contents, places, strict=True)]
    state = _State(snapshot)
    for entry, place in zip(split, places, strict=True):
        state.follow(entry.others, place)
    actions = _file_actions(split, state.partitions, places)
    return state.snapshot(versions[-1], reconcile(snapshot.files, actions))


def after_without_files(snapshot: DeltaSnapshot, content: bytes) -> DeltaSnapshot:
    """The table after the entry of the version that follows a snapshot, without its files.

    Raises:
        DamagedError: an action on anything but a file cannot be read.
    """
    place = log_files.entry_place(snapshot.root, snapshot.version + 1)
    state = _State(snapshot)
    state.follow(entries.split(content, place).others, place)
    return state.snapshot(snapshot.version + 1, empty_table(LIVE_FILES))


class _State:
    """The actions that describe a table, the newest of each kind and name."""

    def __init__(self, before: DeltaSnapshot) -> None:
        self._before = before
        self._protocol, self._metadata = before.protocol, before.metadata
        self._domains, self._transactions = dict(before.domains), dict(before.transactions)
        self._in_commit_ms = before.in_commit_ms
        self.partitions = before.partition_names if before.metadata else set()

    def follow(self, actions: Sequence[Action], place: str) -> None:
        """Take the actions of one entry, or of a checkpoint."""
        try:
            for action in actions:
                self._follow(action)
            self.partitions |= entries.partition_names(actions)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise entries.damaged_entry(place, f"it has a malformed action: {error!r}") from error

    def _follow(self, action: Action) -> None:
        if protocol := action.get("protocol"):
            self._protocol = protocol
        if metadata := action.get("metaData"):
            self._metadata = metadata
        if transaction := action.get("txn"):
            self._transactions[transaction["appId"]] = int(transaction["version"])
        if info := action.get("commitInfo"):
            self._in_commit_ms = info.get("inCommitTimestamp") or self._in_commit_ms
        if domain := action.get("domainMetadata"):
            self._domains.pop(domain["domain"], None)
            if not domain.get("removed"):
                self._domains[domain["domain"]] = domain

    def snapshot(self, version: int, live: pa.Table) -> DeltaSnapshot:
        """The snapshot of these actions at a version."""
        is_described = isinstance(self._metadata.get("schemaString"), str)
        if not is_described or not isinstance(self._protocol.get("minWriterVersion"), int):
            raise DamagedError(
                f"{log_files.log_directory(self._before.root)}: up to version {version} this log describes no table "
                "(its protocol or its metadata is missing); nothing was changed; restore the log from a copy"
            )
        return replace(
            self._before,
            version=version,
            protocol=self._protocol,
            metadata=self._metadata,
            files=live,
            domains=self._domains,
            transactions=self._transactions,
            in_commit_ms=self._in_commit_ms,
        )


def _file_actions(
    split: Sequence[SplitEntry], partitions: set[str], places: Sequence[str]
) -> pa.Table:
    """The file actions of several entries, parsed at once."""
    try:
        return parse_entries(split, partitions, places[0])
    except DamagedError:
        for entry, place in zip(split, places, strict=True):
            parse_entries([entry], partitions, place)
        raise


def _of_checkpoint(root: str, version: int, names: Sequence[str]) -> DeltaSnapshot:
    checkpoint = read_checkpoint(root, names)
    place = log_files.checkpoint_place(root, names[0])
    state = _State(DeltaSnapshot(root, version, {}, {}, checkpoint.live))
    state.follow(checkpoint.others, place)
    snapshot = state.snapshot(version, checkpoint.live)
    if not snapshot.is_set(IN_COMMIT_TIMES):
        return snapshot
    # A checkpoint has no commit info; its version's entry is kept by the protocol as long as it is the newest.
    entry = log_files.entry_place(root, version)
    content = files.read_unchanging(entry)
    info = entries.commit_info([] if content is None else entries.split(content, entry).others)
    return replace(snapshot, in_commit_ms=info.get("inCommitTimestamp"))


def _entry(root: str, version: int) -> bytes:
    place = log_files.entry_place(root, version)
    content = files.read_unchanging(place)
    if content is None:
        raise DamagedError(
            f"{place}: this entry of the table's log is missing, although later ones exist; nothing was changed; "
            "restore it from a copy, or restore the table to a version before it"
        )
    return content
