"""Synthetic rows of evidence: scattered messages, and whole files."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa

from retention.schemas.evidence import EVIDENCE


def run_name(number: int, day: str = "20261103") -> str:
    """The name of the n-th run of a day."""
    return f"{day}T{number // 60 % 24:02d}{number % 60:02d}00.{number:09d}Z-a1b2c3"


def scattered(run: str, seqs: np.ndarray, files: int = 1, size: int = 100) -> pa.Table:
    """Single messages removed by a run, by one rule, from some files; shape `EVIDENCE`."""
    paths = [f"partition=0/segment=1/{uuid.uuid4().hex}.parquet" for _ in range(files)]
    of = np.arange(len(seqs)) * files // max(len(seqs), 1)
    sizes = np.random.default_rng(7).integers(size // 2, 2 * size, len(seqs))
    return rows(run, [paths[at] for at in of], seqs, seqs, sizes, "max_msgs_per_subject")


def whole_files(run: str, spans: np.ndarray, first: int = 1) -> pa.Table:
    """Whole consecutive files removed by a run, with `spans` messages each; shape `EVIDENCE`."""
    lasts = first - 1 + np.cumsum(spans)
    paths = [f"partition=0/segment={last}/{uuid.uuid4().hex}.parquet" for last in lasts]
    sizes = spans * np.random.default_rng(7).integers(100, 1000, len(spans))
    return rows(run, paths, lasts - spans + 1, lasts, sizes, "max_age")


def rows(
    run: str, paths: list[str], firsts: np.ndarray, lasts: np.ndarray, sizes: np.ndarray, rule: str
) -> pa.Table:
    """Ranges without exceptions removed by a run, by one rule; shape `EVIDENCE`."""
    count, messages = len(paths), lasts - firsts + 1
    one = pa.array(np.arange(count + 1), pa.int32())
    nothing = pa.ListArray.from_arrays(
        pa.array(np.zeros(count + 1), pa.int32()), pa.array([], pa.int64())
    )
    columns = {
        "run": [run] * count,
        "path": paths,
        "partition": np.zeros(count, np.int32),
        "segment": [int(path.split("=")[2].partition("/")[0]) for path in paths],
        "first_seq": firsts,
        "last_seq": lasts,
        "messages": messages,
        "bytes": sizes,
        "rules": pa.ListArray.from_arrays(one, pa.array([rule] * count, pa.string())),
        "counts": pa.ListArray.from_arrays(one, pa.array(messages)),
        "except_firsts": nothing,
        "except_lasts": nothing,
        "reclaimed_ns": np.full(count, 1_795_000_000_000_000_000),
        "reclaim_run": ["20261111T000000.000000000Z-d4e5f6"] * count,
    }
    return pa.table(columns).cast(EVIDENCE)
