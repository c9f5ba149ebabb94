"""DuckDB by hand, on plain Parquet files: COPY of the kept rows."""

# ruff: noqa: S608  (statements are built from paths and numbers of the benchmark itself)

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.contenders.contender import ROW_GROUP_ROWS, ZSTD_LEVEL
from benchmarks.contenders.plain_files import Bounds, PlainFiles

_OPTIONS = (
    f"(FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {ZSTD_LEVEL}, "
    f"ROW_GROUP_SIZE {ROW_GROUP_ROWS})"
)


class DuckDb(PlainFiles):
    """One connection, kept open."""

    def open(self) -> None:
        self._connection = duckdb.connect()

    def close(self) -> None:
        self._connection.close()

    def last_to_go(self, bounds: list[Bounds], limit: int) -> int:
        for found in reversed(bounds):
            size = self._number(f"SELECT sum(size) FROM '{found.file}'")
            if size > limit:
                rows = f"SELECT seq, sum(size) OVER (ORDER BY seq DESC) AS tail FROM '{found.file}'"
                return self._number(f"SELECT max(seq) FROM ({rows}) WHERE tail > {limit}")
            limit -= size
        return 0

    def last_seqs(self, files: list[Path]) -> np.ndarray:
        found = self._connection.execute(
            "SELECT max(seq) AS seq FROM read_parquet(?, hive_partitioning = false) GROUP BY subject ORDER BY seq",
            [[str(file) for file in files]],
        )
        return found.fetchnumpy()["seq"]

    def copy_all(self, files: list[Path], target: Path) -> None:
        names = ", ".join(f"'{file}'" for file in files)
        rows = f"read_parquet([{names}], hive_partitioning = false)"
        self._copy(f"SELECT * FROM {rows} ORDER BY seq", target)

    def copy_above(self, file: Path, target: Path, column: str, limit: int) -> None:
        self._copy(f"SELECT * FROM {_rows(file)} WHERE {column} > {limit}", target)

    def copy_only(self, file: Path, target: Path, seqs: np.ndarray) -> None:
        self._connection.register("kept", pa.table({"seq": seqs}))
        self._copy(f"SELECT * FROM {_rows(file)} SEMI JOIN kept USING (seq)", target)

    def _copy(self, query: str, target: Path) -> None:
        self._connection.execute(f"COPY ({query}) TO '{target}' {_OPTIONS}")

    def _number(self, query: str) -> int:
        (value,) = self._connection.execute(query).fetchall()[0]
        return int(value)


def _rows(file: Path) -> str:
    return f"read_parquet('{file}', hive_partitioning = false)"
