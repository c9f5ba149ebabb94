"""Removed files of a table in place that stay because they may have rows under a legal hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from retention.apply.reclaim.report import Amount
from retention.delta.schema import leaves
from retention.engines.local import LocalEngine
from retention.errors import DamagedError
from retention.planners.table_rows import NarrowFile
from retention.storage.checksum import parse_json
from retention.stores.holds import Hold
from retention.tables.access import access_of
from retention.tables.dead_files import DeadFiles, amount_of, done_passes
from retention.tables.held_rows import TableHolds
from retention.tables.holds import TableHoldRecords
from retention.tables.narrow import NarrowReader
from retention.tables.opened import OpenedTable
from retention.tables.records import read_changes

_HELD = "held"
"""The hindrance of files that may have rows under a legal hold."""


def not_held(table: OpenedTable, dead: DeadFiles) -> DeadFiles:
    """Removed files by their fate, of which those with rows under a legal hold, or that cannot be read, stay.

    Raises:
        DamagedError: a record of a legal hold is missing or cannot be read.
        RefusedError: a legal hold does not fit the table any more.
    """
    in_effect = TableHoldRecords(table).in_effect()
    if not in_effect or not dead.going:
        return dead
    held, passes = _held(table, dead, in_effect)
    if not held:
        return dead
    going = {place: size for place, size in dead.going.items() if place not in held}
    amount = amount_of({place: dead.going[place] for place in held})
    staying = {**dead.staying, _HELD: dead.staying.get(_HELD, Amount()) + amount}
    return replace(dead, going=going, staying=staying, passes={*dead.passes, *passes})


def _held(
    table: OpenedTable, dead: DeadFiles, in_effect: Sequence[Hold]
) -> tuple[set[str], set[str]]:
    """The places of files that stay, and the passes that removed them."""
    snapshot, removed = access_of(table).read(table), list(_removed(table))
    if not leaves(snapshot.metadata):
        # A directory has the columns of its files, which are all gone.
        return {*dead.going}, {run for run, _, _ in removed}
    holds = TableHolds.of(table, snapshot, in_effect)
    held = {*dead.going}
    for _, place, add in removed:
        if place in held and not _may_be_held(holds, place, add):
            held.discard(place)
    return held, {run for run, place, _ in removed if place in held}


def _removed(table: OpenedTable) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The files that passes removed: the run, the place of the file, and its `add` action before the run."""
    access = access_of(table)
    for run in done_passes(table):
        for change in read_changes(table, run.run):
            if change.is_whole_or_copied:
                path = unquote(change.before["path"])
                yield run.run, access.place_of_removed(table, run.run, path), change.before


def _may_be_held(holds: TableHolds, place: str, add: Mapping[str, Any]) -> bool:
    """Whether a removed file has a row that a legal hold covers, also one that was dead before; or nobody can tell."""
    try:
        [covered] = holds.covered([_task_at(place, add)], lambda _: LocalEngine())
    except DamagedError:
        return True
    return any(covered.values())


def _task_at(place: str, add: Mapping[str, Any]) -> Callable[[NarrowReader], NarrowFile]:
    whole = {name: value for name, value in add.items() if name != "deletionVector"}
    rows = parse_json(add.get("stats") or "{}").get("numRecords", 0)
    return lambda reader: replace(reader.task(0, whole, rows), location=place)
