"""The payloads of a data file, as Polars, DuckDB and deltalake read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake


def payloads_by_others(file: Path) -> Iterator[list[bytes]]:
    """The payloads in the order of sequences, once for each reader; the file's directory becomes a Delta table."""
    yield pl.read_parquet(file)["payload"].to_list()
    with duckdb.connect() as connection:
        found = connection.read_parquet(str(file)).order("seq").project("payload")
        yield [payload for (payload,) in found.fetchall()]
    convert_to_deltalake(file.parent)
    rows = QueryBuilder().register("rows", DeltaTable(file.parent))
    yield pa.table(rows.execute("SELECT payload FROM rows ORDER BY seq"))["payload"].to_pylist()
