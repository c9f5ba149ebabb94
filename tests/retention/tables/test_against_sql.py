"""Passes over random tables remove exactly the rows that DuckDB selects, on every engine and by every way to decide."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from retention.core.table_policy import RowPolicy, TableColumns, TableLimits, TablePolicy
from retention.delta import snapshot as delta_log
from retention.engine_port import Engine
from retention.engines.local import LocalEngine
from retention.engines.spark.engine import SparkEngine
from retention.planners import table_rows
from retention.tables.apply import apply_plan
from retention.tables.opened import OpenedTable
from retention.tables.plan import FileRemovals, TablePlan
from retention.tables.planning import plan_table

if TYPE_CHECKING:
    pass

TABLES = int(os.environ.get("RETENTION_TABLES", "4"))
"""Random tables: 200 in `make long NAME=tables`."""
NOW = datetime(2027, 1, 15, 8, 30, tzinfo=UTC)
DAY_NS = 86_400 * 10**9
US = pa.timestamp("us", "UTC")
TIMES: dict[str, tuple[pa.DataType, str]] = {
    "timestamp": (US, '"at" <= {cutoff}'),
    "nested": (pa.struct({"at": US}), "event.at <= {cutoff}"),
    "date": (pa.date32(), "(\"at\" + INTERVAL 1 DAY)::TIMESTAMP AT TIME ZONE 'UTC' <= {cutoff}"),
    "local": (pa.timestamp("us"), "\"at\" AT TIME ZONE 'UTC' <= {cutoff}"),
    "integer": (pa.int64(), '"at" <= epoch_ms({cutoff})'),
}
"""Kind of time → the type of its column, and the condition in SQL under which a row is due."""


class World:
    """A random table in place, and a random policy."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Write the table."""
        self.chance = random.Random(seed)
        self.kind = self.chance.choice([*TIMES])
        self.location = str(folder / "events")
        self.policy = self._policy()
        (folder / "warehouse").mkdir()
        self.opened = OpenedTable(
            "events", self.location, self.policy, str(folder / "warehouse"), _clock
        )
        self._write()

    def _policy(self) -> TablePolicy:
        limits = self._limits()
        policies = []
        for values in self.chance.sample([("a",), ("b", None), (None,), ("c",)], 2):
            named = {*self.chance.sample(["max_age", "max_rows_per_key", "max_rows"], 2)}
            own = self._limits()
            fields = {"max_age": "max_age_ns"}
            changed = {fields.get(n, n): getattr(own, fields.get(n, n)) for n in named}
            policies.append(
                RowPolicy(((("tenant",), values),), replace(limits, **changed), frozenset(named))
            )
        columns = TableColumns(
            time=("event", "at") if self.kind == "nested" else ("at",),
            unit="ms" if self.kind == "integer" else None,
            zone="UTC" if self.kind == "local" else None,
            key=self.chance.choice([(("user",),), (("user",), ("shard",))]),
            order=self._some((("version",),)) or (),
            size=("bytes",),
            expires_at=self._some(("until",)),
        )
        limits = replace(limits, expires=columns.expires_at is not None)
        return TablePolicy(
            columns, limits, tuple(self.chance.sample(policies, self.chance.randint(0, 2)))
        )

    def _some(self, *values: Any) -> Any:
        """One of the values, or none."""
        return self.chance.choice([None, *values])

    def _limits(self) -> TableLimits:
        return TableLimits(
            max_age_ns=self._some(20 * DAY_NS, 30 * DAY_NS, 45 * DAY_NS + 1_000_000),
            max_rows_per_key=self._some(1, 3, 8),
            max_rows=self._some(0, 50, 150),
            max_bytes=self._some(400, 2_000),
        )

    def _write(self) -> None:
        """Files mostly in order of time, of which some lose rows to their owner."""
        chance = self.chance
        configuration = {
            "delta.enableDeletionVectors": chance.choice(["true", "false"]),
            "delta.dataSkippingNumIndexedCols": chance.choice(["32", "32", "0", "2"]),
        }
        partitions = chance.choice([None, ["tenant"]])
        self.has_vectors = configuration["delta.enableDeletionVectors"] == "true"
        for number in range(chance.randint(2, 6)):
            rows = [self._row(60 - 10 * number) for _ in range(chance.randint(1, 60))]
            write_deltalake(
                self.location,
                pa.Table.from_pylist(rows, self._schema()),
                mode="append",
                partition_by=partitions,
                configuration=configuration,
            )
        if chance.random() < 0.5:
            # Its copies have text as views.
            DeltaTable(self.location).delete("bytes = 7")
        if self.has_vectors and chance.random() < 0.7:
            self._hide()

    def _hide(self) -> None:
        """Hide a tenth of the rows of every file that stays."""
        now = delta_log.read(self.location)
        removals = []
        for row in range(now.files.num_rows):
            add = now.add_of(row)
            rows = int(add["stats"].split('"numRecords":')[1].split(",")[0].rstrip("}"))
            dead = BitMap64(at for at in range(rows) if self.chance.random() < 0.1)
            if 0 < len(dead) < rows:
                removals.append(FileRemovals(add, {"max_age": dead}, rows))
        if removals:
            hidden = replace(self.plan(LocalEngine()), removals=tuple(removals))
            apply_plan(replace(self.opened, name="other"), hidden)

    def _schema(self) -> pa.Schema:
        return pa.schema(
            [
                ("event" if self.kind == "nested" else "at", TIMES[self.kind][0]),
                *(("user", pa.string()), ("shard", pa.int16()), ("version", pa.string())),
                *(("until", US), ("bytes", pa.int64()), ("tenant", pa.string())),
            ]
        )

    def _row(self, oldest: int) -> dict[str, Any]:
        chance = self.chance
        late = 40 if chance.random() < 0.1 else 0
        # Whole hours are often the same in several rows.
        age = timedelta(hours=24 * oldest - chance.randint(0, 300) + 24 * late)
        at = None if chance.random() < 0.05 else NOW - age
        return {
            **({"event": {"at": at}} if self.kind == "nested" else {"at": at and self._time(at)}),
            "user": chance.choice(["u", "v", "w", "x", None]),
            "shard": chance.choice([1, 2, None]),
            "version": chance.choice(["1", "2", "3", None]),
            "until": chance.choice(
                [None, NOW - timedelta(days=1), NOW, datetime(9999, 12, 31, tzinfo=UTC)]
            ),
            "bytes": chance.choice([None, -5, 7, 11, 90]),
            "tenant": chance.choice(["a", "b", "c", None]),
        }

    def _time(self, at: datetime) -> Any:
        if self.kind == "integer":
            return int(at.timestamp()) * 1000
        if self.kind == "date":
            return at.date()
        return at.replace(tzinfo=None) if self.kind == "local" else at

    def plan(self, engine: Engine) -> TablePlan:
        return plan_table(self.opened, _clock(), lambda size: engine)


def _clock() -> int:
    return int(NOW.timestamp()) * 10**9


class Database:
    """The live rows of a world in DuckDB, with their files and positions, and the rows that go."""

    def __init__(self, world: World) -> None:
        """Read the table's files by DuckDB, and its vectors by deltalake."""
        self.world = world
        self.base = duckdb.connect()
        self.base.execute("SET TimeZone = 'UTC'")
        table = DeltaTable(world.location)
        vectors = {
            unquote(row["filepath"]).rpartition("/")[2]: row["selection_vector"]
            for row in pa.table(table.deletion_vectors()).to_pylist()
        }
        self.base.execute("CREATE TABLE live (position BIGINT, path VARCHAR)")
        for number, add in enumerate(pa.table(table.get_add_actions(flatten=True)).to_pylist()):
            tenant = ", ?::VARCHAR AS tenant" if "partition.tenant" in add else ""
            given = [add["partition.tenant"]] if tenant else []
            query = (
                f"SELECT *, file_row_number AS position, ? AS path {tenant} "  # noqa: S608
                "FROM read_parquet(?, file_row_number = true, hive_partitioning = false)"
            )
            place = f"{world.location}/{unquote(add['path'])}"
            verb = "INSERT INTO live BY NAME" if number else "CREATE OR REPLACE TABLE live AS"
            self.base.execute(f"{verb} {query}", [add["path"], *given, place])
            kept = vectors.get(add["path"].rpartition("/")[2], [])
            for position, is_live in enumerate(kept):
                if not is_live:
                    self.base.execute(
                        "DELETE FROM live WHERE path = ? AND position = ?", [add["path"], position]
                    )

    def removed(self) -> dict[tuple[str, int], str]:
        """Path and position of each row that goes → its limit."""
        self.base.execute(
            "CREATE OR REPLACE TABLE gone (path VARCHAR, position BIGINT, rule VARCHAR)"
        )
        for limit, condition in self._conditions():
            self.base.execute(
                f"INSERT INTO gone SELECT path, position, '{limit}' FROM ("  # noqa: S608
                f"SELECT *, ({condition}) AS goes FROM (SELECT *, {self._policy()} AS policy FROM live) "
                "ANTI JOIN gone USING (path, position)) WHERE goes"
            )
        return {(path, at): rule for path, at, rule in self.base.execute("FROM gone").fetchall()}

    def _conditions(self) -> Iterator[tuple[str, str]]:
        policy, columns = self.world.policy, self.world.policy.columns
        time = "event.at" if self.world.kind == "nested" else '"at"'
        order = "".join(f"{'.'.join(column)} DESC NULLS LAST, " for column in columns.order)
        keys = ", ".join(".".join(column) for column in columns.key)
        tie = "path DESC, position DESC"
        limits = [*(each.limits for each in policy.policies), policy.limits]
        if columns.expires_at:
            yield (
                "expires_at",
                self._by(
                    [
                        f"until <= TIMESTAMPTZ '{NOW}'" if each.expires else "false"
                        for each in limits
                    ]
                ),
            )
        due = TIMES[self.world.kind][1]
        yield (
            "max_age",
            self._by(
                [
                    due.format(
                        cutoff=f"TIMESTAMPTZ '{NOW - timedelta(microseconds=each.max_age_ns // 1000)}'"
                    )
                    if each.max_age_ns is not None
                    else "false"
                    for each in limits
                ]
            ),
        )
        has_key = " AND ".join(f"{'.'.join(column)} IS NOT NULL" for column in columns.key)
        yield from (
            (limit, f"{time} IS NOT NULL AND {has} AND {self._count(limit, window)}")
            for limit, has, window in (
                (
                    "max_rows_per_key",
                    has_key,
                    f"row_number() OVER (PARTITION BY {{group}}, {time} IS NULL, {has_key}, {keys} "
                    f"ORDER BY {order}{time} DESC, {tie})",
                ),
                (
                    "max_rows",
                    "true",
                    f"row_number() OVER (PARTITION BY {{group}}, {time} IS NULL ORDER BY {time} DESC, {order}{tie})",
                ),
                (
                    "max_bytes",
                    "true",
                    "sum(greatest(coalesce(bytes, 0), 0)) OVER (PARTITION BY {group}, "
                    f"{time} IS NULL ORDER BY {time} DESC, {order}{tie})",
                ),
            )
        )

    def _count(self, limit: str, window: str) -> str:
        policy = self.world.policy
        own = [number for number, each in enumerate(policy.policies) if limit in each.named]
        last = len(policy.policies)
        groups = [number if number in own else last for number in range(last + 1)]
        most = [getattr(each.limits, limit) for each in policy.policies]
        most = [
            most[number] if number in own else getattr(policy.limits, limit)
            for number in range(last)
        ]
        most.append(getattr(policy.limits, limit))
        group = self._by([str(each) for each in groups])
        counted = window.format(group=group)
        return self._by(["false" if each is None else f"({counted}) > {each}" for each in most])

    def _by(self, values: list[str]) -> str:
        whens = " ".join(f"WHEN {number} THEN {value}" for number, value in enumerate(values))
        return f"CASE policy {whens} END"

    def _policy(self) -> str:
        policies = self.world.policy.policies
        whens = [
            f"WHEN {' OR '.join('tenant IS NULL' if v is None else f'tenant = {v!r}' for v in each.where[0][1])} "
            f"THEN {number}"
            for number, each in enumerate(policies)
        ]
        return f"CASE {' '.join(whens)} ELSE {len(policies)} END" if whens else "0"


def _planned(plan: TablePlan, database: Database) -> dict[tuple[str, int], str]:
    """The rows that a plan removes, as `Database.removed`; the live rows of files that go whole are DuckDB's."""
    gone = {}
    for each in plan.removals:
        path = unquote(each.add["path"])
        live = database.base.execute("SELECT position FROM live WHERE path = ?", [path]).fetchall()
        for limit, rows in each.rows.items():
            for at in rows if rows is not None else [position for (position,) in live]:
                gone[path, at] = limit
    return gone


def _check(folder: Path, seed: int, engines: list[Engine], monkeypatch: pytest.MonkeyPatch) -> int:
    folder.mkdir()
    world = World(folder, seed)
    plan, database = world.plan(LocalEngine()), Database(world)
    expected = database.removed()
    assert _planned(plan, database) == expected, seed
    with monkeypatch.context() as patched:
        patched.setattr(table_rows, "HELD_BYTES", 0)
        patched.setattr(table_rows, "BUCKET_BYTES", 1 << 10)
        assert {world.plan(engine).plan_id for engine in engines} == {plan.plan_id}, seed
    apply_plan(world.opened, plan)
    left = Database(world).base.execute("SELECT count(*) FROM live").fetchone()
    before = database.base.execute("SELECT count(*) FROM live").fetchone()
    assert left is not None
    assert before is not None
    assert before[0] - left[0] == len(expected), seed
    assert world.plan(LocalEngine()).is_empty, seed
    return len(expected)


def test_random_tables_lose_what_sql_selects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = [
        _check(tmp_path / str(seed), seed, [LocalEngine()], monkeypatch) for seed in range(TABLES)
    ]
    print(f"{TABLES} tables, {sum(removed)} rows removed, from {sum(map(bool, removed))} of them")
    assert sum(map(bool, removed)) > TABLES // 2


@pytest.mark.thorough
@pytest.mark.spark
def test_spark_plans_random_tables_as_this_process_does(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(1000, 1000 + TABLES // 4):
        _check(tmp_path / str(seed), seed, [SparkEngine(spark)], monkeypatch)
