"""Passes over a table in place while its owner writes: the rows are those of one order of the two."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from retention.core.table_policy import TableColumns, TableLimits, TablePolicy
from retention.engines.local import LocalEngine
from retention.errors import BusyError, LostCommitError, RefusedError, StalePlanError
from retention.tables.apply import apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.planning import plan_table
from retention.tables.undo import undo_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RACES = int(os.environ.get("RETENTION_RACES", "3"))
"""Races of each kind: 50 in `make long NAME=races`."""
NOW = 1_800_000_000
DAY = 86_400
FILES: tuple[list[int], ...] = ([*range(25)], [*range(25, 35)], [60], [])
"""The ids of the old rows of each file; file n has the ids from 25 n."""
GONE = {number for file in FILES for number in file}
CHANGED = (5, 40)
"""Ids of rows that others change: one of the file that goes whole, one of the file that loses rows."""
ADDED = (*range(900, 910),)
UNDONE = ("append", "optimize", "sink", "vacuum")
"""Changes of others after which an undo brings back exactly the removed rows."""
Rows = dict[int, str]
"""The id of each row → its value, which tells who wrote it."""


@dataclass(frozen=True)
class Rival:
    """A change that another program makes."""

    act: Callable[[str], object]
    """Given the location of the table."""
    effect: Callable[[Rows], Rows]
    """Its effect on the table's rows."""


def _added(rows: Rows) -> Rows:
    return rows | dict.fromkeys(ADDED, "n")


def _less(rows: Rows) -> Rows:
    return {number: value for number, value in rows.items() if number not in CHANGED}


def _merged(rows: Rows) -> Rows:
    return rows | dict.fromkeys((*CHANGED, 999), "m")


def _same(rows: Rows) -> Rows:
    return rows


def _remaining(rows: Rows) -> Rows:
    return {number: value for number, value in rows.items() if number not in GONE}


def _table(ids: list[int], value: str, old: list[int]) -> pa.Table:
    times = [NOW - DAY * (60 if number in old else 1) for number in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array([second * 10**6 for second in times], pa.timestamp("us", "UTC")),
            "k": [value] * len(ids),
        }
    )


def _vacuum(location: str) -> None:
    DeltaTable(location).vacuum(0, dry_run=False, enforce_retention_duration=False)


DELTALAKE: dict[str, Rival] = {
    "append": Rival(
        lambda place: write_deltalake(place, _table([*ADDED], "n", []), mode="append"), _added
    ),
    "delete": Rival(
        lambda place: DeltaTable(place).delete(f"id in {CHANGED}"),
        _less,
    ),
    "optimize": Rival(lambda place: DeltaTable(place).optimize.compact(), _same),
    "vacuum": Rival(_vacuum, _same),
}


def _by_spark(spark: SparkSession, folder: Path) -> dict[str, Rival]:
    ids = ", ".join(map(str, CHANGED))
    new = f"timestamp_seconds({NOW - DAY})"
    added = f"SELECT id, {new} AS at, 'n' AS k FROM range({ADDED[0]}, {ADDED[-1] + 1})"  # noqa: S608
    merge = f"MERGE INTO delta.`{{0}}` t USING (SELECT explode(array({ids}, 999)) AS id) u "
    merge += "ON t.id = u.id WHEN MATCHED THEN UPDATE SET k = 'm' WHEN NOT MATCHED "
    merge += f"THEN INSERT (id, at, k) VALUES (u.id, {new}, 'm')"  # noqa: S608

    def sql(statement: str) -> Callable[[str], object]:
        return lambda place: spark.sql(statement.format(place))

    def sink(place: str) -> None:
        source = str(folder / "source")
        if not Path(source).exists():
            for number in ADDED[:3]:
                write_deltalake(source, _table([number], "n", []), mode="append")
            write_deltalake(source, _table([*ADDED[3:]], "n", []), mode="append")
        read = spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source)
        writer = read.writeStream.format("delta").option(
            "checkpointLocation", f"{place}-checkpoint"
        )
        writer.trigger(availableNow=True).start(place).awaitTermination()

    return {
        "append": Rival(sql(f"INSERT INTO delta.`{{0}}` {added}"), _added),
        "merge": Rival(sql(merge), _merged),
        "optimize": Rival(sql("OPTIMIZE delta.`{0}`"), _same),
        "delete": Rival(sql(f"DELETE FROM delta.`{{0}}` WHERE id IN ({ids})"), _less),  # noqa: S608
        "sink": Rival(sink, _added),
    }


def _rows(location: str) -> Rows:
    query = QueryBuilder().register("t", DeltaTable(location)).execute("SELECT id, k FROM t")
    rows = pa.table(query.read_all()).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "rows are doubled"
    return {row["id"]: row["k"] for row in rows}


class Course:
    """Races of one kind on copies of one table."""

    def __init__(self, folder: Path, name: str, rival: Rival) -> None:
        self.folder, self.name, self.rival = folder, name, rival
        self.counts: Counter[str] = Counter()
        self.seconds = self.pass_seconds = 0.0
        """The time that the rival's change takes, about, and that a pass takes."""
        self._chance = random.Random(name)
        for has_vectors in (False, True):
            for number, old in enumerate(FILES):
                ids = [*range(25 * number, 25 * (number + 1))]
                write_deltalake(
                    str(folder / f"laid-{has_vectors}"),
                    _table(ids, "x", old),
                    mode="append",
                    configuration={"delta.enableDeletionVectors": str(has_vectors).lower()},
                )
        self.start = dict.fromkeys(range(100), "x")
        (folder / "warehouse").mkdir()

    def opened(self, number: int, second: int = NOW) -> OpenedTable:
        source = self.folder / f"laid-{number % 2 == 0}"
        place = self.folder / f"t{number}"
        if not place.exists():
            shutil.copytree(source, place)
        policy = TablePolicy(TableColumns(time=("at",)), TableLimits(max_age_ns=30 * DAY * 10**9))
        clock = lambda: second * 10**9  # noqa: E731
        return OpenedTable(
            place.name, str(place), policy, str(self.folder / "warehouse"), clock, wait_s=5
        )

    def run(self, number: int) -> None:
        """One race: one of the two begins at a random instant of the other."""
        table = self.opened(number)
        plan = plan_table(table, table.clock(), lambda size: LocalEngine())
        assert (plan.removed_rows, len(plan.removals)) == (len(GONE), 3)
        errors: list[Exception] = []
        lead = self._chance.uniform(-self.pass_seconds, self.seconds)
        thread = threading.Thread(target=self._act, args=(table.location, errors, max(-lead, 0)))
        thread.start()
        time.sleep(max(lead, 0))
        run, ours, started = "", "won", time.monotonic()
        try:
            run = apply_plan(table, plan).run
        except (StalePlanError, BusyError, LostCommitError) as error:
            ours = f"refused, {type(error).__name__}"
        self.pass_seconds = time.monotonic() - started
        thread.join()
        theirs = "refused" if errors else "done"
        effect = _same if errors else self.rival.effect
        if not run:
            assert _rows(table.location) == effect(self.start), (number, ours, theirs)
            later = self.opened(number, NOW + 10)
            again = plan_table(later, later.clock(), lambda size: LocalEngine())
            run, ours = apply_plan(later, again).run, f"{ours}, then done"
        rows = _rows(table.location)
        orders = [_remaining(effect(self.start)), effect(_remaining(self.start))]
        assert rows in orders, (number, ours, theirs, errors, set(rows) ^ set(orders[0]))
        self._undo(number, run, effect)
        self.counts[f"ours {ours}; theirs {theirs}"] += 1
        shutil.rmtree(table.location)

    def _undo(self, number: int, run: str, effect: Callable[[Rows], Rows]) -> None:
        """Undo the run: all rows are there, or it is refused by name and nothing changes."""
        table = self.opened(number, NOW + 20)
        before = _rows(table.location)
        refusal = ""
        try:
            undo_run(table, run)
        except RefusedError as error:
            refusal = str(error)
        if refusal:
            assert ("gone, as after a VACUUM" in refusal, self.name) == (True, "vacuum"), refusal
            assert _rows(table.location) == before
        elif self.name in UNDONE:
            assert _rows(table.location) == effect(self.start)

    def _act(self, location: str, errors: list[Exception], pause_s: float = 0) -> None:
        time.sleep(pause_s)
        started = time.monotonic()
        try:
            self.rival.act(location)
        except Exception as error:  # a refusal of the rival is a result
            errors.append(error)
        seconds = time.monotonic() - started
        self.seconds = seconds if not self.seconds else 0.7 * self.seconds + 0.3 * seconds

    def measure(self, number: int) -> None:
        """Let the rival change a copy of the table alone; the second time tells how long it takes."""
        self.seconds, errors = 0.0, list[Exception]()
        self._act(self.opened(number).location, errors)
        assert not errors

    def report(self, program: str) -> None:
        print(f"\n{program} {self.name}, {RACES} races, {self.seconds:.2f} s each:")
        for outcome, count in self.counts.most_common():
            print(f"  {count:3} {outcome}")


def _race(folder: Path, program: str, name: str, rival: Rival) -> None:
    course = Course(folder, name, rival)
    for number in (-2, -1):
        course.measure(number)
    for number in range(RACES):
        course.run(number)
    course.report(program)


@pytest.mark.parametrize("name", DELTALAKE)
def test_rows_are_right_beside_deltalake(tmp_path: Path, name: str) -> None:
    _race(tmp_path, "deltalake", name, DELTALAKE[name])


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.parametrize("name", ["append", "merge", "optimize", "delete", "sink"])
def test_rows_are_right_beside_spark(tmp_path: Path, spark: SparkSession, name: str) -> None:
    _race(tmp_path, "Spark", name, _by_spark(spark, tmp_path)[name])
