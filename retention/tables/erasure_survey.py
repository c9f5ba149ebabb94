"""A survey for an erasure of rows: the files with such rows, the runs that lose their undo, and the legal holds."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote

import pyarrow as pa

from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.delta.features import refuse_unsafe
from retention.delta.snapshot import DeltaSnapshot
from retention.erasure.keyed_hash import keyed_hash_of
from retention.erasure.needles import Needles, needles_of_values
from retention.erasure.search import texts_with
from retention.errors import DamagedError, RefusedError
from retention.history.kinds import TableApplied, TableRun
from retention.history.record import UNKNOWN
from retention.rules.tables.erase import ErasedKeys
from retention.storage import files
from retention.stores.holds import Hold
from retention.tables.access import access_of
from retention.tables.erased_rows import (
    ChooseEngine,
    ErasedFile,
    Key,
    former_files,
    live_files,
    rows_at,
    texts_of,
    typed_keys,
)
from retention.tables.held_rows import TableHolds
from retention.tables.holds import TableHoldRecords
from retention.tables.opened import OpenedTable
from retention.tables.plan import FileRemovals
from retention.tables.records import read_changes
from retention.tables.sole_copies import holds_with_sole_copies

_NOTHING = "nothing was changed"


@dataclass(frozen=True)
class TableErasureSurvey:
    """The rows of an erasure in all files of a table, at one version."""

    table: OpenedTable
    keys: tuple[Key, ...]
    snapshot: DeltaSnapshot
    typed: tuple[ErasedKeys, ...]
    live: tuple[ErasedFile, ...]
    former: tuple[ErasedFile, ...]
    """Files in the table's directory that are not live: older versions, change data, and what nobody committed."""
    holds: tuple[str, ...]
    """The ids of the legal holds that it considered."""
    spared: frozenset[str] = frozenset()
    """Keyed hashes of the paths of files that the erasure itself took out of the table."""

    @property
    def removed_rows(self) -> int:
        """The live rows that go."""
        return sum(file.removed for file in self.live)

    @cached_property
    def written_by_us(self) -> list[ErasedFile]:
        """The former files that our runs wrote, but those that the erasure itself took out of the table."""
        written = written_by_runs(self.table)
        keyed = keyed_hash_of(self.table.warehouse) if self.spared else None
        return [
            file
            for file in self.former
            if file.path in written and (keyed is None or keyed.of(file.path) not in self.spared)
        ]

    @cached_property
    def needles(self) -> Needles:
        """The strings of the rows, in all files, and those of the keys."""
        parts = [
            text
            for file in (*self.live, *self.former)
            for rows in rows_at(files.join(self.snapshot.root, file.path), file.rows)
            for text in texts_of(rows)
        ]
        values = pa.chunked_array(parts, pa.binary()).unique().drop_null().cast(pa.large_binary())
        named = sorted({value.encode() for key in self.keys for value in key.values()})
        return needles_of_values({"key": pa.array(named, pa.large_binary()), "value": values})

    def lost_undos(self) -> Iterator[str]:
        """The runs whose files have rows of the erasure, or whose record has strings of them."""
        paths = {file.path for file in (*self.live, *self.former)}
        for record in self.table.history.outcomes():
            if not isinstance(record, TableApplied):
                continue
            try:
                changed = read_changes(self.table, record.run)
            except DamagedError:
                continue
            actions = [each for change in changed for each in (change.before, change.after) if each]
            is_one = not paths.isdisjoint(unquote(add["path"]) for add in actions)
            if is_one or texts_with({json.dumps(add) for add in actions}, self.needles):
                yield record.run


def written_by_runs(table: OpenedTable) -> set[str]:
    """The decoded paths of the files that our runs wrote."""
    return {
        path
        for record in table.history.outcomes()
        if isinstance(record, TableRun) and record.status != UNKNOWN
        for path in record.staged
    }


def survey_table_erasure(
    table: OpenedTable,
    keys: Sequence[Key],
    choose: ChooseEngine,
    spared: Collection[str] = (),
    so_far: str = _NOTHING,
) -> TableErasureSurvey:
    """Survey an erasure of rows; nothing is changed.

    Args:
        table: the table.
        keys: the keys of the rows.
        choose: chooses the engine that reads rows.
        spared: keyed hashes of the paths of files that the erasure itself took out of the table: it deletes none.
        so_far: the part of a refusal that says what the erasure has changed.

    Raises:
        RefusedError: a legal hold covers a row; the table is a directory without a log; or nothing may be removed.
        UsageError: the table has no such column, or a value is none of its type.
        DamagedError, StorageError: the table cannot be read.
    """
    access_of(table).refuse_erasure(table)
    snapshot = access_of(table).read_to_commit(table)
    refuse_unsafe(snapshot)
    typed = typed_keys(table, snapshot, keys)
    live = live_files(snapshot, typed, choose)
    holds = TableHoldRecords(table).in_effect()
    if holds:
        wanted = _held_rows(TableHolds.of(table, snapshot, holds), live, choose)
        _refuse(table, holds, wanted, so_far)
    former = former_files(snapshot, typed, choose)
    ids = tuple(hold.id for hold in holds)
    survey = TableErasureSurvey(
        *(table, tuple(keys), snapshot, tuple(typed), tuple(live), tuple(former), ids),
        spared=frozenset(spared),
    )
    refuse_held_files(table, snapshot, survey.written_by_us, choose, so_far)
    return survey


def refuse_held_files(
    table: OpenedTable,
    snapshot: DeltaSnapshot,
    doomed: Sequence[ErasedFile],
    choose: ChooseEngine,
    so_far: str,
) -> None:
    """Refuse to delete files with the only copy of a held row.

    Args:
        table: the table.
        snapshot: its version.
        doomed: the files.
        choose: chooses the engine that reads rows.
        so_far: the part of a refusal that says what the erasure has changed.

    Raises:
        RefusedError: names the legal holds, their owners and reasons.
    """
    holds = TableHoldRecords(table).in_effect() if doomed else ()
    if holds:
        covering = TableHolds.of(table, snapshot, holds)
        needed = holds_with_sole_copies(covering, doomed, choose)
        _refuse(table, holds, needed, so_far, "of which the files to delete have the only copy")


def _held_rows(
    covering: TableHolds, live: Sequence[ErasedFile], choose: ChooseEngine
) -> Iterator[str]:
    """The legal holds that cover a live row of an erasure."""
    removals = [FileRemovals(file.add, {}, file.live) for file in live]
    for file, by_hold in zip(live, covering.positions(removals, choose), strict=True):
        yield from (hold for hold, rows in by_hold.items() if rows & file.rows)


def _refuse(
    table: OpenedTable,
    holds: Sequence[Hold],
    held: Iterable[str],
    so_far: str,
    which: str = "that the erasure would destroy",
) -> None:
    """Refuse an erasure that would lose held rows.

    Raises:
        RefusedError: names the legal holds, their owners and reasons.
    """
    wanted = set(held)
    named = [hold for hold in holds if hold.id in wanted]
    if named:
        first = named[0]
        owner = "" if first.owner is None else f" of {first.owner}"
        more = f" and {counted(len(named) - 1, 'other hold')}" if len(named) > 1 else ""
        raise RefusedError(
            f"{table.name}: legal hold {first.id}{owner} ({first.reason}){more} keeps rows {which}, and a "
            f"legal hold wins; {so_far}; erase after "
            f"{command('hold release', first.id, options='--reason …')}"
        )
