"""Polars by hand, on plain Parquet files: a lazy scan, a filter, a sink."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.contenders.contender import ROW_GROUP_ROWS, ZSTD_LEVEL, first_to_keep
from benchmarks.contenders.plain_files import Bounds, PlainFiles


class Polars(PlainFiles):
    """Every query runs on the engine chosen by Polars."""

    def last_to_go(self, bounds: list[Bounds], limit: int) -> int:
        rows = _scan([found.file for found in bounds]).select("seq", "size").collect()
        return first_to_keep(rows["seq"].to_numpy(), rows["size"].to_numpy(), limit) - 1

    def last_seqs(self, files: list[Path]) -> np.ndarray:
        last = _scan(files).group_by("subject").agg(pl.col("seq").max())
        return last.select(pl.col("seq").sort()).collect()["seq"].to_numpy()

    def copy_all(self, files: list[Path], target: Path) -> None:
        _write(_scan(files).sort("seq"), target)

    def copy_above(self, file: Path, target: Path, column: str, limit: int) -> None:
        _write(_scan([file]).filter(pl.col(column) > limit), target)

    def copy_only(self, file: Path, target: Path, seqs: np.ndarray) -> None:
        kept = pl.LazyFrame({"seq": seqs})
        _write(_scan([file]).join(kept, on="seq", how="semi", maintain_order="left"), target)


def _scan(files: list[Path]) -> pl.LazyFrame:
    return pl.scan_parquet(files, hive_partitioning=False)


def _write(rows: pl.LazyFrame, target: Path) -> None:
    rows.sink_parquet(
        target, compression="zstd", compression_level=ZSTD_LEVEL, row_group_size=ROW_GROUP_ROWS
    )
