"""The contenders by name, and the process of each."""

from __future__ import annotations

import importlib

from benchmarks.contenders.contender import Contender

WHERE = {
    "ours": "ours:Local",
    "ours+vectors": "ours:LocalWithVectors",
    "ours-spark": "ours_on_spark:OnSpark",
    "ours-spark-cluster": "ours_on_cluster:OnCluster",
    "deltalake": "delta_rs:ByTime",
    "deltalake-partition": "delta_rs:ByPartition",
    "delta-spark": "delta_spark:ByTime",
    "delta-spark-partition": "delta_spark:ByPartition",
    "delta-spark-window": "delta_spark:ByWindow",
    "pyiceberg": "iceberg:ByTime",
    "duckdb": "duckdb_files:DuckDb",
    "polars": "polars_files:Polars",
}
"""Name of a contender → module and class; those of one module share a process."""


def load(name: str) -> Contender:
    """Create a contender.

    Raises:
        ImportError: its library is not installed.
    """
    module, _, kind = WHERE[name].partition(":")
    contender: Contender = getattr(importlib.import_module(f"{__name__}.{module}"), kind)()
    return contender
