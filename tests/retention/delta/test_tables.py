"""Files removed, hidden in part, rewritten and restored in tables of every feature; others read exact rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyroaring import BitMap64

from retention.delta import snapshot
from retention.delta.change_data import has_change_data, write_change_data
from retention.delta.commit import Operation, commit
from retention.delta.entries import Action, remove_of, vector_id, with_vector
from retention.delta.row_ids import FEATURE, with_row_ids
from retention.delta.schema import leaves
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import inline, needs_rewrite, unite, write_vectors
from tests.support.delta_tables import rewritten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Columns = Mapping[str, tuple[str, str | None]]
"""Name → type and value; no value if the table makes it."""
Rows = dict[int, str]
"""The `id` of each row → all its values."""
COLUMNS = {
    "id": ("BIGINT", "id"),
    "ts": ("TIMESTAMP", "timestamp_micros(1760000000000000 + id * 60000000 + 777)"),
    "until": ("TIMESTAMP", "if(id % 2 = 0, timestamp'9999-12-31 12:00:00', timestamp'1600-01-01')"),
    "k": ("STRING", "concat('k', id % 7, repeat('x', 40))"),
    "n": ("STRUCT<a: INT, b: STRING>", "named_struct('a', cast(id AS int), 'b', concat('b', id))"),
    "l": ("ARRAY<TIMESTAMP>", "array(timestamp_micros(id), null)"),
    "d": ("DOUBLE", "cast(id AS double)"),
    "c": ("DECIMAL(30, 2)", "cast(id AS decimal(30, 2)) / 3"),
}
DAY = {"day": ("DATE", "date'2026-01-01'")}
STRANGE = {"p": ("STRING", "'a b/c=d%e:é'")}


@dataclass(frozen=True)
class Table:
    """A table of a feature, as SQL."""

    properties: dict[str, str] = field(default_factory=dict)
    further: Columns = field(default_factory=dict)
    clause: str = ""
    has_vectors: bool = True
    statements: tuple[str, ...] = ()
    """Carried out before the last hundred rows are inserted."""


def supported(feature: str) -> dict[str, str]:
    return {f"delta.feature.{feature}": "supported"}


PARTITIONED = "PARTITIONED BY (day)"
NAMED = {"delta.columnMapping.mode": "name"}
TRACKED = {"delta.enableRowTracking": "true"}
FED = {"delta.enableChangeDataFeed": "true"}
TIMED = {"delta.enableInCommitTimestamps": "true"}
WIDENED = ("ALTER TABLE {t} ALTER COLUMN w TYPE BIGINT",)
JSON_COLUMN = {"j": ("VARIANT", "parse_json('{\"x\":1}')")}
TABLES = {
    "several": Table(NAMED | TRACKED | FED | TIMED, DAY, PARTITIONED),
    "vectors": Table(),
    "mapping-partitioned": Table(NAMED, DAY, PARTITIONED),
    "tracking-feed": Table(TRACKED | FED),
    "in-commit-timestamps": Table(TIMED),
    "plain": Table(has_vectors=False),
    "partitioned": Table({}, DAY, PARTITIONED),
    "partitioned-strange": Table({}, STRANGE, "PARTITIONED BY (p)"),
    "partitioned-null": Table({}, {"p": ("STRING", "cast(null AS string)")}, "PARTITIONED BY (p)"),
    "constraints": Table(statements=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)",)),
    "generated": Table(
        {}, {"day": ("DATE GENERATED ALWAYS AS (CAST(ts AS DATE))", None)}, PARTITIONED
    ),
    "not-null": Table({}, {"m": ("BIGINT NOT NULL", "id")}),
    "identity": Table({}, {"i": ("BIGINT GENERATED ALWAYS AS IDENTITY", None)}),
    "defaults": Table(supported("allowColumnDefaults"), {"v": ("STRING DEFAULT 'x'", None)}),
    "mapping-name": Table(NAMED),
    "mapping-id": Table({"delta.columnMapping.mode": "id"} | TRACKED),
    "feed": Table(FED),
    "feed-plain-partitioned": Table(FED, DAY, PARTITIONED, has_vectors=False),
    "v2-checkpoints": Table({"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "3"}),
    "local-times": Table({}, {"ntz": ("TIMESTAMP_NTZ", "cast(timestamp_micros(id) AS timestamp_ntz)")}),
    "widened": Table(
        {"delta.enableTypeWidening": "true"}, {"w": ("INT", "cast(id AS int)")}, statements=WIDENED
    ),
    "tracking": Table(TRACKED),
    "clustered": Table({}, {}, "CLUSTER BY (ts)"),
    "iceberg-2": Table(NAMED | {"delta.enableIcebergCompatV2": "true"}, has_vectors=False),
    "iceberg-2-partitioned": Table(
        NAMED | {"delta.enableIcebergCompatV2": "true"}, DAY, PARTITIONED, has_vectors=False
    ),
    "iceberg-3": Table(NAMED | TRACKED | {"delta.enableIcebergCompatV3": "true"}),
    "variant": Table({}, JSON_COLUMN),
    "variant-shredded": Table({"delta.enableVariantShredding": "true"}, JSON_COLUMN),
    "vacuum-check": Table(supported("vacuumProtocolCheck")),
    "checkpoint-protection": Table(supported("checkpointProtection")),
    "domains": Table(supported("domainMetadata")),
    "partition-columns": Table(supported("materializePartitionColumns"), DAY, PARTITIONED),
    "everything": Table(
        NAMED | TRACKED | FED | TIMED
        | {"delta.checkpointPolicy": "v2", "delta.enableTypeWidening": "true"},
        DAY | {"w": ("INT", "cast(id AS int)")},
        PARTITIONED,
        statements=(*WIDENED, "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)"),
    ),
}  # fmt: skip
RESULTS = Path(__file__).parents[2] / "support/table-features.md"
"""The results of `make long NAME=tables`; with `ACCEPT=1` it writes them there."""
READERS = {"by_deltalake": "deltalake", "by_polars": "Polars"}
IMPLIED = {"appendOnly", "invariants", "deletionVectors"}
"""Features that Spark lists with every other one, or that the results have a column for."""
QUICK = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings for statements on a few rows."""


def create(spark: SparkSession, root: Path, table: Table) -> None:
    """Create a table of four files with a hundred rows each."""
    name = f"delta.`{root}`"
    columns: Columns = {**COLUMNS, **table.further}
    properties = {"delta.enableDeletionVectors": str(table.has_vectors).lower(), **table.properties}
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    kinds = ", ".join(f"`{column}` {kind}" for column, (kind, _) in columns.items())
    spark.sql(f"CREATE TABLE {name} ({kinds}) USING delta {table.clause} TBLPROPERTIES ({listed})")
    if not table.statements:
        insert(spark, root, table, 1, 400, files=4)
        return
    insert(spark, root, table, 1, 300, files=3)
    for statement in table.statements:
        spark.sql(statement.format(t=name))
    insert(spark, root, table, 301, 400)


def insert(
    spark: SparkSession, root: Path, table: Table, first: int, last: int, files: int = 1
) -> None:
    columns: Columns = {**COLUMNS, **table.further}
    given = {column: value for column, (_, value) in columns.items() if value is not None}
    values = ", ".join(f"{value} AS `{column}`" for column, value in given.items())
    ids = f"range({first}, {last + 1})"
    rows = spark.sql(f"SELECT {values} FROM {ids}")  # noqa: S608
    rows.repartitionByRange(files, "id").createOrReplaceTempView("laid")
    spark.sql(f"INSERT INTO delta.`{root}` ({', '.join(given)}) SELECT * FROM laid")  # noqa: S608


def by_spark(spark: SparkSession, root: Path) -> Rows:
    """The rows; where the table tracks rows, with their ids and versions of commits."""
    frame = spark.read.format("delta").load(str(root))
    is_tracked = snapshot.read(str(root)).is_set("delta.enableRowTracking")
    tracked = ", _metadata.row_id, _metadata.row_commit_version" if is_tracked else ""
    rows = frame.selectExpr("id", f"to_json(struct(*{tracked}))").collect()
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1] for row in rows}


def by_deltalake(root: Path) -> Rows:
    query = QueryBuilder().register("t", DeltaTable(root)).execute("SELECT * FROM t")
    return texts(pa.table(query.read_all()).to_pylist())


def by_polars(root: Path) -> Rows:
    return texts(pl.scan_delta(str(root)).collect().to_dicts())


def texts(rows: list[dict[str, Any]]) -> Rows:
    """All but `until`: some read years beyond 2262 from INT96 as others."""
    return {row["id"]: str([row[name] for name in sorted({*row} - {"until"})]) for row in rows}


def by_others(root: Path) -> dict[str, Rows]:
    """The rows by each other reader that reads this table."""
    read: dict[str, Rows] = {}
    for reader in (by_deltalake, by_polars):
        with suppress(Exception):
            read[reader.__name__] = reader(root)
    return read


class Trial:
    """A table, its rows before, and the removals that follow each other."""

    def __init__(self, spark: SparkSession, root: Path, table: Table) -> None:
        self.spark, self.root, self.table = spark, root, table
        create(spark, root, table)
        self.first = snapshot.read(str(root))
        self.before = by_spark(spark, root)
        self.others = by_others(root)
        column = next(
            leaf.physical[0] for leaf in leaves(self.first.metadata) if leaf.path == ("id",)
        )
        self.ids = {
            add["path"]: pq.read_table(root / unquote(add["path"]), columns=[column])[0].to_pylist()
            for add in live(self.first).values()
        }
        self.adds = sorted(live(self.first).values(), key=lambda add: self.ids[add["path"]])
        assert (len(self.before), len(self.adds)) == (400, 4)
        self.remaining = set(self.before)
        self.removed: dict[int, int] = {}
        """Version → rows that its commit removed."""

    def commit(
        self, before: DeltaSnapshot, actions: list[Action], gone: dict[int, list[int]]
    ) -> None:
        """Commit actions that remove rows of files at these positions, and compare all that remain."""
        numbers = [
            self.ids[self.adds[at]["path"]][row] for at, rows in gone.items() for row in rows
        ]
        after = commit(before, lambda *_: actions, Operation("DELETE", "test"), lambda: 0)
        self.remaining -= {*numbers}
        self.removed[after.version] = len(numbers)
        self.check()

    def check(self) -> None:
        expected = {number: self.before[number] for number in self.remaining}
        assert by_spark(self.spark, self.root) == expected
        others = by_others(self.root)
        assert others.keys() == self.others.keys()
        for name, rows in others.items():
            assert rows == {number: self.others[name][number] for number in self.remaining}, name

    def hide(self, positions: dict[int, list[int]], *, whole: list[int], in_file: bool) -> None:
        """Remove whole files, and hide rows of others by vectors in the log or in one file."""
        before = snapshot.read(str(self.root))
        adds = [self._live(before, at) for at in positions]
        dead = [
            unite(str(self.root), add, BitMap64(rows))
            for add, rows in zip(adds, positions.values(), strict=True)
        ]
        vectors = write_vectors(str(self.root), dead) if in_file else [*map(inline, dead)]
        actions = [
            action
            for add, vector in zip(adds, vectors, strict=True)
            for action in (remove_of(add, 1), with_vector(add, vector, 1))
        ]
        actions += [remove_of(self._live(before, at), 1) for at in whole]
        every = {at: [*range(100)] for at in whole}
        self.commit(before, actions, positions | every)

    def rewrite(self, at: int, rows: list[int]) -> None:
        before = snapshot.read(str(self.root))
        add, dead = self._live(before, at), BitMap64(rows)
        adds = [rewritten(str(self.root), before.metadata, add, dead)]
        actions = [remove_of(add, 1)]
        if FEATURE in before.features:
            adds, domain = with_row_ids(adds, before.domains, before.version + 1)
            actions.append({"domainMetadata": domain})
        if has_change_data(before.metadata):
            change = write_change_data(str(self.root), before.metadata, add, dead)
            actions.append({"cdc": change})
        self._check_with_duckdb(add, adds[0])
        self.commit(before, [*actions, *({"add": each} for each in adds)], {at: rows})

    def skip_by_statistics(self) -> None:
        """Filters at the very bounds of a copy lose no rows, though statistics skip files."""
        numbers = sorted(self.remaining & {*self.ids[self.adds[2]["path"]]})
        micros = [1760000000000000 + end * 60000000 + 777 for end in (numbers[0], numbers[-1])]
        frame = self.spark.read.format("delta").load(str(self.root))
        frame = frame.where(f"id BETWEEN {numbers[0]} AND {numbers[-1]}").select("id", "ts", "k")
        found = (
            frame.where(f"ts <= timestamp_micros({micros[0]})")
            .union(frame.where(f"ts >= timestamp_micros({micros[1]})"))
            .union(frame.where(f"k >= 'k6{'x' * 40}'"))
        )
        expected = [numbers[0], numbers[-1], *(number for number in numbers if number % 7 == 6)]
        assert sorted(row[0] for row in found.collect()) == sorted(expected)

    def check_changes(self) -> None:
        """The change feed has each removed row, once."""
        feed = self.spark.read.format("delta").option("readChangeFeed", "true")
        rows = feed.option("startingVersion", self.first.version + 1).load(str(self.root))
        counted = rows.groupBy("_commit_version", "_change_type").count().collect()
        assert {(row[0], row[1]): row[2] for row in counted} == {
            (version, "delete"): count for version, count in self.removed.items()
        }

    def undo(self) -> None:
        before = snapshot.read(str(self.root))
        now, then = live(before), live(self.first)
        actions = [remove_of(add, 1) for key, add in now.items() if key not in then]
        actions += [{"add": add} for key, add in then.items() if key not in now]
        commit(before, lambda *_: actions, Operation("RESTORE", "test"), lambda: 0)
        self.remaining = set(self.before)
        self.check()

    def _live(self, current: DeltaSnapshot, at: int) -> Action:
        path = self.adds[at]["path"]
        return next(add for add in live(current).values() if add["path"] == path)

    def _check_with_duckdb(self, source: dict[str, Any], copy: dict[str, Any]) -> None:
        """DuckDB reads the copy as the file that it was made of, except that instants have a zone."""
        query = "SELECT COLUMNS(*)::VARCHAR FROM read_parquet(?)"
        of_source, of_copy = (
            {str(row[: len(COLUMNS)]).replace("+00", "") for row in rows.fetchall()}
            for add in (source, copy)
            for rows in [duckdb.execute(query, [str(self.root / unquote(add["path"]))])]
        )
        assert of_copy <= of_source


def live(current: DeltaSnapshot) -> dict[tuple[str, str], Action]:
    """Path and vector of each live file → its `add` action."""
    adds = [current.add_of(row) for row in range(current.files.num_rows)]
    return {(add["path"], vector_id(add.get("deletionVector"))): add for add in adds}


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, quick at statements on a few rows."""
    duckdb.execute("SET TimeZone = 'UTC'")
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name in QUICK:
        spark.conf.unset(name)


def check_results(name: str, trial: Trial) -> None:
    """The row of a table in the results is what happened to it."""
    readers = ", ".join(["Spark", *map(READERS.__getitem__, trial.others)])
    ways = "vectors" if takes_vectors(trial) else "copies"
    features = ", ".join(sorted(trial.first.features - IMPLIED)) or "none"
    row = f"| {name} | {features} | {ways} | {readers} |"
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(f"| {name} |"))
    if os.environ.get("ACCEPT"):
        lines[at] = row
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines[at] == row


def takes_vectors(trial: Trial) -> bool:
    return trial.table.has_vectors and not needs_rewrite(trial.adds[1]["path"])


def test_the_results_have_every_table() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    assert re.findall(r"^\| ([a-z0-9-]+) \|[^|]*\|[^|]*\|[^|]*\|$", text, re.MULTILINE)[1:] == [
        *TABLES
    ]


def test_the_page_has_every_feature_of_the_results() -> None:
    page = Path("docs/semantics/tables-features.md").read_text(encoding="utf-8")
    tried = re.findall(r"^\| [a-z0-9-]+ \| ([\w, -]+) \|", RESULTS.read_text("utf-8"), re.MULTILINE)
    features = {feature for cell in tried for feature in cell.split(", ")} - {"features", "none"}
    assert features == {*re.findall(r"`([\w-]+)`", page.split("## Limits")[0])} - {"table-features"}


@pytest.mark.thorough
@pytest.mark.parametrize("name", TABLES)
def test_each_change_removes_exactly_its_rows_and_is_undone(
    quick: SparkSession, tmp_path: Path, name: str
) -> None:
    trial = Trial(quick, tmp_path / name, TABLES[name])
    if takes_vectors(trial):
        trial.hide({1: [4, 5]}, whole=[0], in_file=True)
        trial.hide({1: [6, 99], 2: [0]}, whole=[], in_file=False)
    else:
        trial.hide({}, whole=[0], in_file=False)
    trial.rewrite(2, [*range(20, 30), 98, 99])
    trial.skip_by_statistics()
    if has_change_data(trial.first.metadata):
        trial.check_changes()
    trial.undo()
    check_results(name, trial)
    insert(quick, trial.root, trial.table, 401, 410)
    assert len(by_spark(quick, trial.root)) == 410
