"""The undo of a pass over a table in place: files and vectors as they were, or the rows alone in new files.

1. A file that went whole is in the table again, under the vector that it had.
2. A file that got a vector has it without the rows of the run, also if others have deleted more since.
3. A copy that is still in the table gives way to the file that it was made from.
4. If others have rewritten the copy, or the file with the vector, the rows of the run come back as a file of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyroaring import BitMap64

from retention.delta import entries, vectors
from retention.delta.entries import Action
from retention.delta.file_actions import live_vectors
from retention.delta.parquet_rows import ParquetSource
from retention.delta.rewrite import rewrite
from retention.delta.snapshot import DeltaSnapshot
from retention.errors import RefusedError, StalePlanError, UsageError
from retention.history.kinds import TableApplied, TableUndone
from retention.tables.access import access_of
from retention.tables.committing import committing
from retention.tables.erasures import refuse_erased
from retention.tables.opened import OpenedTable
from retention.tables.recorded import Announced, commit_recorded, maintained
from retention.tables.records import ChangedFile, read_changes
from retention.tables.stage import numbered


@dataclass(frozen=True)
class Reverted:
    """The actions of an undo, with the files that it wrote."""

    removes: tuple[Mapping[str, Any], ...] = ()
    """`add` actions of live files that leave."""
    adds: tuple[Mapping[str, Any], ...] = ()
    """`add` actions of files as they were."""
    vectored: tuple[Mapping[str, Any], ...] = ()
    """`add` actions of files with a new vector."""
    made: tuple[Mapping[str, Any], ...] = ()
    """`add` actions of new files with rows that came back."""
    made_digests: Mapping[str, str] = field(default_factory=dict)
    """Path of each of them → the SHA-256 of its bytes."""
    absent: frozenset[str] = frozenset()
    """Paths of the files that these rows were in: were one in the table again, its rows would be there twice."""

    def actions(self, version: int, now_ms: int, snapshot: DeltaSnapshot) -> list[Action]:
        """The actions of a commit of this version.

        Raises:
            StalePlanError: others restored a file whose rows are in a new one.
        """
        restored = sorted(
            path for path, live in live_vectors(snapshot.files, self.absent).items() if live
        )
        if restored:
            raise StalePlanError(
                f"{snapshot.root}: others added {restored[0]} again while its rows were being restored; nothing was "
                "changed; look which rows are in the table, and undo again if some are missing"
            )
        return [
            *(entries.remove_of(add, now_ms) for add in self.removes),
            *({"add": {**add, "dataChange": True}} for add in (*self.adds, *self.vectored)),
            *numbered(self.made, version, snapshot),
        ]

    def digests(self) -> Mapping[str, str]:
        """Path of each new file of rows → the SHA-256 of its bytes."""
        return self.made_digests

    def written(self) -> list[str]:
        """The paths of the files that are written, in the table's directory."""
        held = (vectors.vector_location("", add["deletionVector"]) for add in self.vectored)
        return [
            *(unquote(add["path"]) for add in self.made),
            *sorted({place.lstrip("/") for place in held if place}),
        ]


@dataclass
class _Reverting:
    """The actions that an undo collects, file by file."""

    removes: list[Mapping[str, Any]] = field(default_factory=list)
    adds: list[Mapping[str, Any]] = field(default_factory=list)
    made: list[Mapping[str, Any]] = field(default_factory=list)
    made_digests: dict[str, str] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    vectors: list[tuple[Mapping[str, Any], BitMap64]] = field(default_factory=list)
    """Files that keep a vector: the `add` action before the run, and the rows that are dead then."""


def undo_run(table: OpenedTable, run: str) -> TableUndone:
    """Bring back exactly the rows that a pass removed, in one commit.

    Raises:
        UsageError: there is no such run, or it removed nothing.
        RefusedError: it is undone already; a file or a vector is gone, as after a VACUUM; or others restored some.
        RetentionError: as `apply.apply_plan`.
    """
    with maintained(table):
        undoing = table.history.name_run(table.clock())
        # A reclaim that takes the lease over settles the undo before it deletes the files.
        with committing(table, undoing):
            record, changed, current = _checked(table, run)
            reverting = _Reverting()
            live = _live(current, changed)
            for change in changed:
                _revert(current, live, change, reverting)
            staged = _staged(current, reverting)
            return commit_recorded(
                table,
                current,
                TableUndone(
                    run=undoing,
                    as_of_ns=table.clock(),
                    undoes=run,
                    location=table.location,
                    restored_rows=record.removed_rows,
                    restored_files=len(staged.adds) + len(staged.vectored),
                    written_files=len(staged.made),
                ),
                Announced(table, undoing, staged),
                "RESTORE",
                {"numRestoredFiles": len(staged.adds) + len(staged.vectored) + len(staged.made)},
            )


def undoable(table: OpenedTable, run: str) -> TableApplied:
    """The outcome of a pass that can be undone now; nothing is changed.

    Raises:
        UsageError, RefusedError: as `undo_run`.
    """
    return _checked(table, run)[0]


def _checked(table: OpenedTable, run: str) -> tuple[TableApplied, list[ChangedFile], DeltaSnapshot]:
    """The outcome of a pass that can be undone, the files that it changed, and the table as it is."""
    access = access_of(table)
    record = _undoable(table, run)
    changed = read_changes(table, run)
    current = access.read_to_commit(table)
    access.refuse_unrestorable(table, record, changed, current)
    return record, changed, current


def _undoable(table: OpenedTable, run: str) -> TableApplied:
    """The outcome of a pass that can be undone."""
    record = table.history.done(run)
    if not isinstance(record, TableApplied) or not record.is_done:
        raise UsageError(
            f"{table.name}: no pass of this table has the name {run}; `retention history {table.name}` lists them"
        )
    undone = [
        later.run
        for later in table.history.since(run)
        if isinstance(later, TableUndone) and later.is_done and later.undoes == run
    ]
    if undone:
        raise RefusedError(f"{table.name}: run {run} is undone already, by run {undone[0]}")
    refuse_erased(table, run)
    if record.version_after is None:
        raise RefusedError(
            f"{table.name}: the table's log no longer tells which version run {run} committed, so that nobody can tell "
            "what others restored since; nothing was changed; restore the rows from a copy"
        )
    return record


def _live(current: DeltaSnapshot, changed: Sequence[ChangedFile]) -> dict[str, Mapping[str, Any]]:
    """Decoded path → the `add` action of a live file that the run changed or wrote."""
    wanted = {
        unquote(add["path"]) for change in changed for add in (change.before, change.after) if add
    }
    paths = current.files["path"].to_pylist()
    rows = [row for row, path in enumerate(paths) if unquote(path) in wanted]
    return {unquote(paths[row]): current.add_of(row) for row in rows}


def _revert(
    current: DeltaSnapshot,
    live: Mapping[str, Mapping[str, Any]],
    change: ChangedFile,
    reverting: _Reverting,
) -> None:
    if change.after is None:
        reverting.adds.append(change.before)
        return
    now = live.get(unquote(change.after["path"]))
    if now is None:
        _make_rows(current, change, reverting)
    elif not change.is_copied:
        if entries.vector_id(now.get("deletionVector")) == entries.vector_id(
            change.before.get("deletionVector")
        ):
            return
        reverting.removes.append(now)
        dead = vectors.read_vector(current.root, now.get("deletionVector")) - change.dead
        reverting.vectors.append((change.before, dead))
    elif entries.vector_id(now.get("deletionVector")) == entries.vector_id(
        change.after.get("deletionVector")
    ):
        reverting.removes.append(now)
        reverting.adds.append(change.before)
    else:
        _make_rows(current, change, reverting)


def _make_rows(current: DeltaSnapshot, change: ChangedFile, reverting: _Reverting) -> None:
    """Write a new file with the rows that a run removed from a file that stayed."""
    source = ParquetSource(current.root, current.metadata, change.before)
    everything = BitMap64(range(source.rows))
    add, sha256 = rewrite(current.root, current.metadata, change.before, everything - change.dead)
    reverting.made.append(add)
    reverting.made_digests[unquote(add["path"])] = sha256
    reverting.absent.add(unquote(change.before["path"]))


def _staged(current: DeltaSnapshot, reverting: _Reverting) -> Reverted:
    """The undo's actions; a file with exactly its old dead rows has its old vector, or none."""
    adds = list(reverting.adds)
    new: list[tuple[Mapping[str, Any], BitMap64]] = []
    for before, dead in reverting.vectors:
        if dead == vectors.read_vector(current.root, before.get("deletionVector")):
            adds.append(before)
        elif not dead:
            adds.append({name: before[name] for name in before if name != "deletionVector"})
        else:
            new.append((before, dead))
    written = vectors.choose(current.root, [dead for _, dead in new])
    vectored = [
        {**before, "deletionVector": vector}
        for (before, _), vector in zip(new, written, strict=True)
    ]
    return Reverted(
        tuple(reverting.removes),
        tuple(adds),
        tuple(vectored),
        tuple(reverting.made),
        reverting.made_digests,
        frozenset(reverting.absent),
    )
