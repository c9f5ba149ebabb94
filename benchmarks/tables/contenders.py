"""The contenders: this engine, and what an owner of the table runs by hand."""

# ruff: noqa: S608  (statements are built from paths and numbers of the benchmark itself)

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

import retention
from benchmarks.tables.data import KEPT_PER_KEY, TASKS, Size, TaskName, copy_table, data_files
from retention.engines.select import EngineName
from retention.engines.spark.session import session

_AGE_DAYS = 30
_LATEST = "ORDER BY ts DESC, seq DESC"
Survivors = tuple[int, int]
"""The number of rows that are left, and the sum of their `seq`."""


class Contender(ABC):
    """One way to do the work; only `run` is measured."""

    tasks: tuple[TaskName, ...] = TASKS
    vectors = False
    """Whether its table has deletion vectors enabled."""

    def open(self) -> None:  # noqa: B027  (most contenders have nothing to open)
        """Start what stays warm between runs."""

    def close(self) -> None:  # noqa: B027  (most contenders have nothing to close)
        """Stop what `open` started."""

    def place(self, source: Path, place: Path) -> None:
        """Put a fresh copy of the table at `place`."""
        copy_table(source, place)

    @abstractmethod
    def run(self, place: Path, task: TaskName, size: Size) -> None:
        """Do the work."""

    def survivors(self, place: Path) -> Survivors:
        """The rows that a reader of the table finds afterwards."""
        return _counted(pl.scan_delta(str(place)))


class InSession(Contender):
    """A contender in a warm session of Spark."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def open(self) -> None:
        self._session = self._stack.enter_context(session("benchmarks"))

    def close(self) -> None:
        self._stack.close()


class Ours(Contender):
    """This engine: the configuration sets the limits, one call applies them."""

    engine: EngineName = "local"

    def run(self, place: Path, task: TaskName, size: Size) -> None:
        home = place.with_name(place.name + "-home")
        home.mkdir()
        limits = {
            "max_age": f"time: ts, max_age: {_AGE_DAYS}d",
            "ttl": "expires_at: expires_at",
            "last": f"time: ts, key: [user_id], max_rows_per_key: {KEPT_PER_KEY}",
        }
        entry = f"{{name: events, location: {place}, {limits[task]}}}"
        (home / "retention.yaml").write_text(f"tables:\n  - {entry}\n", encoding="utf-8")
        table = retention.open_warehouse(home / "retention.yaml", engine=self.engine).table(
            "events"
        )
        instant = size.now
        if task == "max_age":
            instant = size.cutoff + timedelta(days=_AGE_DAYS)
        table.plan(round(instant.timestamp() * 1000) * 1_000_000).apply()


class OursWithVectors(Ours):
    """This engine on a table with vectors."""

    vectors = True


class OursOnSpark(InSession, Ours):
    """This engine, which decides rows on Spark."""

    engine = "spark"


class OursOnSparkWithVectors(OursOnSpark):
    """This engine on Spark and a table with vectors."""

    vectors = True


class DeltaRs(Contender):
    """deltalake: `delete` with a predicate, which copies the rows that stay."""

    tasks = ("max_age", "ttl")

    def run(self, place: Path, task: TaskName, size: Size) -> None:
        column, instant = _predicate(task, size)
        DeltaTable(str(place)).delete(f"{column} <= '{instant}'")


class DeltaSpark(InSession, Contender):
    """Spark in a warm session: DELETE, and MERGE for the last rows of each key."""

    def run(self, place: Path, task: TaskName, size: Size) -> None:
        table = f"delta.`{place}`"
        if task == "last":
            number = f"row_number() OVER (PARTITION BY user_id {_LATEST}) AS number"
            spent = (
                f"SELECT seq FROM (SELECT seq, {number} FROM {table}) WHERE number > {KEPT_PER_KEY}"
            )
            statement = f"MERGE INTO {table} AS t USING ({spent}) AS s ON t.seq = s.seq WHEN MATCHED THEN DELETE"
        else:
            column, instant = _predicate(task, size)
            statement = f"DELETE FROM {table} WHERE {column} <= timestamp'{instant}'"
        self._session.sql(statement).collect()


class DeltaSparkWithVectors(DeltaSpark):
    """Spark, which writes vectors."""

    vectors = True


class Iceberg(Contender):
    """PyIceberg on the same data files, registered in an Iceberg table: `delete` with a filter."""

    tasks = ("max_age", "ttl")

    def place(self, source: Path, place: Path) -> None:
        super().place(source, place)
        catalog = _catalog(place)
        catalog.create_namespace("bench")
        files = data_files(place)
        table = catalog.create_table("bench.events", schema=pq.read_schema(files[0]))
        table.add_files([str(file) for file in files])

    def run(self, place: Path, task: TaskName, size: Size) -> None:
        column, instant = _predicate(task, size)
        _catalog(place).load_table("bench.events").delete(f"{column} <= '{instant.isoformat()}'")

    def survivors(self, place: Path) -> Survivors:
        rows = _catalog(place).load_table("bench.events").scan(selected_fields=("seq",)).to_arrow()
        return _counted(pl.LazyFrame(rows))


class Files(Contender):
    """Plain Parquet files: files whose rows all go are unlinked, others are written anew."""

    def place(self, source: Path, place: Path) -> None:
        place.mkdir()
        for file in data_files(source):
            os.link(file, place / file.name)

    def run(self, place: Path, task: TaskName, size: Size) -> None:
        if task == "last":
            self.keep_last(data_files(place), place)
            return
        column, instant = _predicate(task, size)
        for file in data_files(place):
            low, high = _range(file, column)
            if high <= instant:
                file.unlink()
            elif low <= instant:
                target = file.with_name(f"new-{file.name}")
                self.copy_later(file, target, column, instant)
                target.replace(file)

    def survivors(self, place: Path) -> Survivors:
        return _counted(pl.scan_parquet(place / "*.parquet"))

    @abstractmethod
    def keep_last(self, files: list[Path], place: Path) -> None:
        """Write all files anew with the last rows of each key."""

    @abstractmethod
    def copy_later(self, file: Path, target: Path, column: str, instant: Any) -> None:
        """Write the rows of a file whose time is later."""


class DuckDb(Files):
    """DuckDB: COPY of the rows that stay."""

    def open(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")

    def keep_last(self, files: list[Path], place: Path) -> None:
        number = f"row_number() OVER (PARTITION BY user_id {_LATEST})"
        rows = f"SELECT * FROM '{place}/part-*.parquet' QUALIFY {number} <= {KEPT_PER_KEY}"
        self._connection.execute(f"COPY ({rows}) TO '{place}/all.parquet' (FORMAT parquet)")
        for file in files:
            file.unlink()

    def copy_later(self, file: Path, target: Path, column: str, instant: Any) -> None:
        rows = f"SELECT * FROM '{file}' WHERE {column} > timestamptz '{instant}'"
        self._connection.execute(f"COPY ({rows}) TO '{target}' (FORMAT parquet)")


class Polars(Files):
    """Polars: a lazy scan, a filter, a sink."""

    def keep_last(self, files: list[Path], place: Path) -> None:
        rows = pl.scan_parquet(files)
        kept = rows.sort("ts", "seq", descending=True).group_by("user_id").head(KEPT_PER_KEY)
        kept.sink_parquet(place / "all.parquet", compression="snappy")
        for file in files:
            file.unlink()

    def copy_later(self, file: Path, target: Path, column: str, instant: Any) -> None:
        kept = pl.scan_parquet(file).filter(pl.col(column) > instant)
        kept.sink_parquet(target, compression="snappy")


CONTENDERS: dict[str, type[Contender]] = {
    "ours": Ours,
    "ours+vectors": OursWithVectors,
    "ours-spark": OursOnSpark,
    "ours-spark+vectors": OursOnSparkWithVectors,
    "deltalake": DeltaRs,
    "spark": DeltaSpark,
    "spark+vectors": DeltaSparkWithVectors,
    "pyiceberg": Iceberg,
    "duckdb": DuckDb,
    "polars": Polars,
}


def _predicate(task: TaskName, size: Size) -> tuple[str, Any]:
    """The column that decides, and the last instant that goes."""
    return ("ts", size.cutoff) if task == "max_age" else ("expires_at", size.now)


def _range(file: Path, column: str) -> tuple[Any, Any]:
    """The first and the last time in a file, by its footer."""
    footer = pq.read_metadata(file)
    at = footer.schema.to_arrow_schema().get_field_index(column)
    groups = [
        footer.row_group(number).column(at).statistics for number in range(footer.num_row_groups)
    ]
    return min(group.min for group in groups), max(group.max for group in groups)


def _counted(rows: pl.LazyFrame) -> Survivors:
    found = rows.select(pl.len().alias("rows"), pl.col("seq").sum().alias("sum")).collect()
    return int(found["rows"][0]), int(found["sum"][0])


def _catalog(place: Path) -> Catalog:
    uri = f"sqlite:///{place / 'catalog.db'}"
    return load_catalog("bench", type="sql", uri=uri, warehouse=(place / "iceberg").as_uri())
