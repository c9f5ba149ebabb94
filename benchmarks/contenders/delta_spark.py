"""delta-spark by hand: DELETE and INSERT OVERWRITE in SQL, in a warm session tuned like the engine's own."""

# ruff: noqa: S608  (statements are built from paths and numbers of the benchmark itself)

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from benchmarks.contenders.contender import ZSTD_LEVEL, DeltaContender
from benchmarks.data import messages_of
from benchmarks.tasks import ALL_NAMES, COMPACT_NAMES, Task
from retention.engines.spark.session import session


class ByTime(DeltaContender):
    """One predicate on the deciding column."""

    tasks: tuple[str, ...] = ALL_NAMES

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    def open(self) -> None:
        self._session = self._stack.enter_context(session("benchmarks"))
        self._session.conf.set("parquet.compression.codec.zstd.level", str(ZSTD_LEVEL))

    def close(self) -> None:
        self._stack.close()

    def run(self, place: Path, task: Task) -> None:
        table = f"delta.`{messages_of(place)}`"
        if task.name in COMPACT_NAMES:
            self._optimize(table, task.limit)
        elif task.kind == "last":
            self._keep_last(table)
        elif task.kind == "bytes":
            self._delete(table, "seq", self._last_to_go(table, task.limit))
        else:
            self._delete(table, task.column, task.limit)

    def _optimize(self, table: str, limit: int) -> None:
        self._sql(f"SET spark.databricks.delta.optimize.maxFileSize = {limit}")
        self._sql(f"OPTIMIZE {table}")

    def _delete(self, table: str, column: str, limit: int) -> None:
        self._sql(f"DELETE FROM {table} WHERE {column} <= {limit}")

    def _keep_last(self, table: str) -> None:
        # DELETE supports no subquery, and a MERGE that deletes non-matching rows was slower.
        last = f"SELECT max(seq) AS seq FROM {table} GROUP BY subject"
        kept = f"SELECT /*+ BROADCAST(last) */ t.* FROM {table} AS t LEFT SEMI JOIN last ON t.seq = last.seq"
        self._sql(f"INSERT OVERWRITE TABLE {table} WITH last AS ({last}) {kept}")

    def _last_to_go(self, table: str, limit: int) -> int:
        """The highest sequence to remove: segments by their sums, then rows of the cut segment."""
        sums = self._sql(
            f"SELECT segment, sum(size) AS bytes FROM {table} GROUP BY segment ORDER BY segment DESC"
        )
        for segment, size in sums:
            if size > limit:
                rows = f"SELECT seq, sum(size) OVER (ORDER BY seq DESC) AS tail FROM {table} WHERE segment = {segment}"
                ((last,),) = self._sql(f"SELECT max(seq) FROM ({rows}) WHERE tail > {limit}")
                return int(last)
            limit -= size
        return 0

    def _columns(self, table: str) -> StructType:
        if self._session is None:
            raise RuntimeError("open() starts the session")
        return self._session.table(table).schema

    def _sql(self, statement: str) -> list[Row]:
        if self._session is None:
            raise RuntimeError("open() starts the session")
        return self._session.sql(statement).collect()


class ByWindow(ByTime):
    """The last message of each subject by a window over its messages."""

    tasks = ("last", "last-many")

    def _keep_last(self, table: str) -> None:
        columns = [field.name for field in self._columns(table)]
        number = "row_number() OVER (PARTITION BY subject ORDER BY seq DESC) AS number"
        numbered = f"SELECT *, {number} FROM {table}"
        self._sql(
            f"INSERT OVERWRITE TABLE {table} SELECT {', '.join(columns)} FROM ({numbered}) WHERE number = 1"
        )


class ByPartition(ByTime):
    """Whole segments by a predicate on the partition column (metadata only), then the cut segment."""

    tasks = ("drop", "cut", "bytes")

    def _delete(self, table: str, column: str, limit: int) -> None:
        bounds = self._sql(f"SELECT segment, max({column}) AS last FROM {table} GROUP BY segment")
        spent = [segment for segment, last in bounds if last <= limit]
        if spent:
            self._sql(f"DELETE FROM {table} WHERE segment <= {max(spent)}")
        if len(spent) < len(bounds):
            cut = min(segment for segment, last in bounds if last > limit)
            self._sql(f"DELETE FROM {table} WHERE segment = {cut} AND {column} <= {limit}")
