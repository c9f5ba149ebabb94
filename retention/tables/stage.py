"""Replacements of files that lose rows: the same file with another vector, or a copy of the remaining rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyroaring import BitMap64

from retention.delta import entries, vectors
from retention.delta.change_data import has_change_data, write_change_data
from retention.delta.entries import Action
from retention.delta.rewrite import rewrite
from retention.delta.row_ids import FEATURE as ROW_IDS
from retention.delta.row_ids import with_row_ids
from retention.delta.snapshot import DeltaSnapshot
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.tables.plan import FileRemovals
from retention.tables.records import ChangedFile


@dataclass(frozen=True)
class StagedRemovals:
    """The replacements of a commit, written and durable."""

    changed: tuple[ChangedFile, ...]
    change_data: tuple[Mapping[str, Any], ...] = ()
    """The `cdc` actions of copies, for tables with a change feed."""

    @property
    def copies(self) -> list[Mapping[str, Any]]:
        """The `add` actions of copies."""
        return [change.after for change in self.changed if change.is_copied and change.after]

    def bytes_written(self) -> int:
        """The bytes of copies and of change data; vectors are part of the entry, or small."""
        return sum(int(action["size"]) for action in (*self.copies, *self.change_data))

    def actions(self, version: int, now_ms: int, snapshot: DeltaSnapshot) -> list[Action]:
        """The actions of a commit of this version; as `delta.commit.Build`."""
        removes = [entries.remove_of(change.before, now_ms) for change in self.changed]
        kept = [
            entries.with_vector(change.before, change.after["deletionVector"], now_ms)
            for change in self.changed
            if change.after is not None and not change.is_copied
        ]
        return [
            *removes,
            *kept,
            *numbered(self.copies, version, snapshot),
            *({"cdc": dict(fields)} for fields in self.change_data),
        ]

    def digests(self) -> dict[str, str]:
        """Path of each copy → the SHA-256 of its bytes."""
        return {
            unquote(change.after["path"]): change.sha256
            for change in self.changed
            if change.after is not None and change.sha256 is not None
        }

    def written(self) -> list[str]:
        """The paths of the files that are written, in the table's directory; vectors of one commit share a file."""
        actions = (*self.copies, *self.change_data)
        held = (change.after for change in self.changed if change.after and not change.is_copied)
        places = (vectors.vector_location("", after["deletionVector"]) for after in held)
        return [
            *(unquote(action["path"]) for action in actions),
            *sorted({place.lstrip("/") for place in places if place}),
        ]


def discard(root: str, paths: Iterable[str]) -> None:
    """Delete written files that no commit names, as far as the storage lets us: the owner's VACUUM takes the rest."""
    with suppress(OSError):
        files.delete(files.join(root, path) for path in paths)
    reached(Step.STAGED_DISCARDED)


@contextmanager
def discarded_on_failure(root: str, paths: Iterable[str]) -> Iterator[None]:
    """Delete written files, which no commit names yet, if the block fails."""
    try:
        yield
    except BaseException:
        discard(root, paths)
        raise


def numbered(
    adds: Sequence[Mapping[str, Any]], version: int, snapshot: DeltaSnapshot
) -> list[Action]:
    """The actions that add new files, with row ids if the table numbers its rows."""
    if not adds or ROW_IDS not in snapshot.features:
        return [{"add": dict(add)} for add in adds]
    with_ids, domain = with_row_ids(adds, snapshot.domains, version)
    return [*({"add": add} for add in with_ids), {"domainMetadata": domain}]


def stage(
    snapshot: DeltaSnapshot, removals: Iterable[FileRemovals], step: Callable[[FileRemovals], None]
) -> StagedRemovals:
    """Write what replaces the files of a plan.

    Args:
        snapshot: the table.
        removals: the rows that go.
        step: called after each file.

    Raises:
        DamagedError, VerificationError, StorageError: a file cannot be read, or a copy is not as expected.
    """
    root, metadata = snapshot.root, snapshot.metadata
    changed: list[ChangedFile] = []
    change_data: list[Mapping[str, Any]] = []
    by_vector: list[tuple[FileRemovals, BitMap64]] = []
    try:
        for each in removals:
            if each.is_whole:
                changed.append(ChangedFile(each.add, None, each.rows))
            elif takes_vector(snapshot, each):
                by_vector.append((each, vectors.unite(root, each.add, each.dead)))
            else:
                after, sha256 = rewrite(root, metadata, each.add, each.dead)
                changed.append(ChangedFile(each.add, after, each.rows, sha256))
                if has_change_data(metadata):
                    feed = write_change_data(root, metadata, each.add, each.dead)
                    change_data += [feed] if feed else []
            step(each)
        written = vectors.choose(root, [dead for _, dead in by_vector])
        changed += [
            ChangedFile(each.add, {**each.add, "deletionVector": vector}, each.rows)
            for (each, _), vector in zip(by_vector, written, strict=True)
        ]
    except BaseException:
        discard(root, StagedRemovals(tuple(changed), tuple(change_data)).written())
        raise
    return StagedRemovals(tuple(changed), tuple(change_data))


def stage_copies(
    snapshot: DeltaSnapshot, dead: Iterable[tuple[Mapping[str, Any], BitMap64 | None]]
) -> StagedRemovals:
    """Write copies of files without some rows; neither vectors nor change data, which would keep or repeat these.

    Args:
        snapshot: the table.
        dead: the `add` action of each file, and the positions of its rows that go; None: all of them.

    Raises:
        DamagedError, VerificationError, StorageError: as `stage`.
    """
    changed: list[ChangedFile] = []
    try:
        for add, rows in dead:
            copied = None if rows is None else rewrite(snapshot.root, snapshot.metadata, add, rows)
            after, sha256 = copied or (None, None)
            # A tombstone would carry the statistics into later checkpoints, with values of these rows.
            before = {name: value for name, value in add.items() if name != "stats"}
            changed.append(ChangedFile(before, after, {}, sha256))
    except BaseException:
        discard(snapshot.root, StagedRemovals(tuple(changed)).written())
        raise
    return StagedRemovals(tuple(changed))


def takes_vector(snapshot: DeltaSnapshot, removals: FileRemovals) -> bool:
    """Whether a file that loses rows gets a vector, and no copy is made.

    The owner has enabled them, every reader will see it, and most of the file's rows stay.
    """
    if not snapshot.is_set(vectors.VECTORS_ENABLED) or "deletionVectors" not in snapshot.features:
        return False
    if vectors.needs_rewrite(removals.add["path"]):
        return False
    rows = json.loads(removals.add.get("stats") or "{}").get("numRecords")
    return rows is not None and vectors.is_worth(rows, rows - removals.live + removals.removed)
