"""Interleavings of two sides on one table in place: erasures and legal holds against everything that changes it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from retention.api.warehouse import Warehouse, open_warehouse
from retention.engines import local
from retention.errors import UsageError
from retention.stores import lease
from retention.tables import holds
from tests.support.interleavings import (
    UNFINISHED,
    Act,
    attempt,
    interleave,
    possible,
    steps_of,
)

NAME = "events"
NOW = datetime(2027, 6, 1, tzinfo=UTC)
DAY_NS = 86_400 * 10**9
NOW_NS = int(NOW.timestamp()) * 10**9
EVE, BOB, CARL = "eve-4f0c2b7d9a31", "bob-88d1c5e07f42", "carl-07f4288d1c5e"
KINDS = ("copies", "vectors")
_TICKS = count()
_SCHEMA = pa.schema(
    {"user": pa.string(), "id": pa.int64(), "at": pa.timestamp("us", "UTC")},
)


def lived_in(folder: Path, kind: str) -> None:
    """A table after one pass and an undone one, due for another; a legal hold of Carl's rows was released."""
    (folder / "warehouse").mkdir(parents=True)
    table = {
        "name": NAME,
        "location": str(folder / "lake"),
        "time": "at",
        "key": "user",
        "max_age": "120d",
    }
    _configure(folder, table)
    for first in (0, 100, 200):
        _append(folder, first, {"delta.enableDeletionVectors": str(kind == "vectors").lower()})
    apply(folder)
    _configure(folder, table | {"max_age": "100d"})


def held(folder: Path, kind: str) -> None:
    """The same table, with a legal hold of Bob's rows."""
    lived_in(folder, kind)
    hold(folder)


def _configure(folder: Path, table: dict[str, str]) -> None:
    """Write the configuration; a copy of the folder has its own table."""
    lines = {key: value for key, value in table.items() if key != "location"}
    text = json.dumps({"warehouse": "warehouse", "tables": [lines | {"location": "lake"}]})
    (folder / "retention.yaml").write_text(text, encoding="utf-8")


def _append(
    folder: Path, first: int, configuration: Mapping[str, str | None] | None = None
) -> None:
    """Append a file with rows of each person: one older than 120 days, one older than 100, one young."""
    rows = [
        {"user": user, "id": first + 10 * number + days // 10, "at": NOW - timedelta(days=days)}
        for number, user in enumerate((EVE, BOB, CARL))
        for days in (130, 110, 5)
    ]
    place, table = str(folder / "lake"), pa.Table.from_pylist(rows, _SCHEMA)
    write_deltalake(place, table, mode="append", configuration=configuration)


def warehouse_at(folder: Path, days: int = 0) -> Warehouse:
    """The warehouse, some days later; no two runs of the two sides begin at the same instant."""
    place = folder / "retention.yaml"
    return open_warehouse(
        place, engine="local", clock=lambda: NOW_NS + days * DAY_NS + 1000 * next(_TICKS)
    )


def apply(folder: Path) -> None:
    """A pass."""
    warehouse_at(folder).table(NAME).apply()


def undo(folder: Path) -> None:
    """The first pass is undone."""
    table = warehouse_at(folder).table(NAME)
    table.undo(min(run.run for run in table.runs() if run.kind == "apply_table"))


def reclaim(folder: Path) -> None:
    """The files of the first pass are deleted."""
    warehouse_at(folder, 10).table(NAME).reclaim().apply()


def hold(folder: Path) -> None:
    """A legal hold of Bob's rows."""
    warehouse_at(folder).hold(NAME, key={"user": BOB}, reason="case 41")


def hold_eve(folder: Path) -> None:
    """A legal hold of the rows that the erasure wants."""
    warehouse_at(folder).hold(NAME, key={"user": EVE}, reason="case 42")


def release(folder: Path) -> None:
    """The legal hold is released."""
    warehouse = warehouse_at(folder)
    ids = [each.id for each in warehouse.holds()]
    warehouse.release_hold(min(ids, default="none"), reason="closed")


def erase(folder: Path) -> None:
    """The rows of Eve are erased."""
    warehouse_at(folder).table(NAME).erase({"user": EVE}, reason="request 7").apply()


def erase_carl(folder: Path) -> None:
    """Another erasure, of rows in the same files."""
    warehouse_at(folder).table(NAME).erase({"user": CARL}, reason="request 8").apply()


def append(folder: Path) -> None:
    """The owner appends rows of other people."""
    rows = [{"user": "dora", "id": 900, "at": NOW}]
    write_deltalake(str(folder / "lake"), pa.Table.from_pylist(rows, _SCHEMA), mode="append")


def optimize(folder: Path) -> None:
    """The owner merges files."""
    DeltaTable(str(folder / "lake")).optimize.compact()


def verify(folder: Path) -> None:
    """The table is verified."""
    assert warehouse_at(folder).table(NAME).verify().damages == ()


def without_lease(act: Act) -> Act:
    """The same act after a loss of the lease, as on an object store with a paused holder."""

    def acting(folder: Path) -> None:
        for place in (folder / "warehouse").glob("tables/**/*.lease"):
            place.unlink()
        act(folder)

    return acting


MINE: Mapping[str, tuple[Act, Any]] = {
    "erase": (erase, lived_in),
    "erase-under-hold": (erase, held),
    "hold": (hold, lived_in),
    "release": (release, held),
    "apply": (apply, lived_in),
    "apply-under-hold": (apply, held),
    "undo": (undo, lived_in),
    "reclaim": (reclaim, lived_in),
}
"""Acts that pause at each of their steps, and the table before."""
THEIRS: Mapping[str, Act] = {
    "erase": without_lease(erase),
    "other-erase": without_lease(erase_carl),
    "hold": hold,
    "hold-of-erased": hold_eve,
    "release": release,
    "apply": without_lease(apply),
    "undo": without_lease(undo),
    "reclaim": without_lease(reclaim),
    "append": append,
    "optimize": optimize,
    "verify": verify,
}
"""Acts that happen meanwhile."""
ABOUT = ("erase", "hold", "release")


def pairs() -> list[tuple[str, str]]:
    """The pairs of which one side is an erasure, a legal hold, or the end of one."""
    return [
        (mine, theirs)
        for mine in MINE
        for theirs in THEIRS
        if any(word in mine.partition("-")[0] or word in theirs for word in ABOUT)
        if theirs != "release" or MINE[mine][1] is held
    ]


def left_by(folder: Path) -> dict[str, Any]:
    """The state that must match a serial order of the two sides."""
    table = QueryBuilder().register("t", DeltaTable(str(folder / "lake")))
    rows = pa.table(table.execute("SELECT id FROM t ORDER BY id").read_all())
    warehouse = warehouse_at(folder)
    return {"rows": rows["id"].to_pylist(), "holds": len(warehouse.holds())}


def play(folder: Path, mine: str, theirs: str, kind: str, *, every: bool) -> tuple[int, list[str]]:
    """Pause one side at each of its steps while the other acts; returns the number of pauses, and the violations."""
    hurry()
    act, prepare = MINE[mine]
    base = folder / "base"
    prepare(base, kind)

    def after(name: str, *acts: Act) -> dict[str, Any]:
        copy = _copy(base, name)
        refused = [attempt(each, copy) for each in acts]
        # A wrong call would make every order look right.
        assert len(acts) != 1 or not isinstance(refused[0], UsageError), refused[0]
        return left_by(copy)

    rival = THEIRS[theirs]
    allowed = {
        (True, True): [after("mine-first", act, rival), after("theirs-first", rival, act)],
        (True, False): [after("mine", act)],
        (False, True): [after("theirs", rival)],
        # An unfinished erasure, and an act that is refused because of it.
        (False, False): [after("neither")],
    }
    steps = steps_of(act, _copy(base, "steps"))
    points = [point for point in steps if every or point.endswith("#1")]
    wrongs = []
    for point in points:
        place = _copy(base, point)
        ended, other = interleave(place, act, rival, point)
        left = left_by(place)
        shutil.rmtree(place)
        if not any(
            left in allowed[is_mine, is_theirs]
            for is_mine in possible(ended)
            for is_theirs in possible(other)
            if is_mine or is_theirs or UNFINISHED in f"{ended} {other}"
        ):
            wrongs.append(
                f"{mine}/{theirs}/{kind} at {point}: {ended or 'done'} / {other or 'done'}: {left}"
            )
    return len(points), wrongs


def _copy(base: Path, name: str) -> Path:
    return Path(shutil.copytree(base, base.with_name(name), symlinks=True))


def _can_expire(root: str) -> bool:
    return bool(root)


def hurry() -> None:
    """Skip waits for a paused side, whose lease can be lost as on an object store; copies are written one at a time."""
    holds.WAIT_S = 0.0
    lease.can_expire = _can_expire
    local.THREADS = 1
