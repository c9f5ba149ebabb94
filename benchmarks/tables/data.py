"""The table of the benchmark: a Delta table of events, as Spark might have written it, with and without vectors."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FIRST = datetime(2025, 1, 1, tzinfo=UTC)
TENANTS = 50
LATE = 0.01
"""The share of rows that arrive up to an hour after their time."""
DUE = 0.05
"""The share of rows whose deadline is over in `ttl`, in every file."""
KEPT_SHARE = 1 / 4
KEPT_PER_KEY = 5
_SEED = 20_250_103
_TYPES = {
    "seq": "long",
    "ts": "timestamp",
    "tenant": "string",
    "user_id": "long",
    "expires_at": "timestamp",
    "body": "string",
}
_ARROW = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("tenant", pa.string()),
        ("user_id", pa.int64()),
        ("expires_at", pa.timestamp("us", "UTC")),
        ("body", pa.string()),
    ]
)
TaskName = Literal["max_age", "ttl", "last"]
TASKS: tuple[TaskName, ...] = ("max_age", "ttl", "last")


@dataclass(frozen=True)
class Size:
    """The size of the table; a row takes 10 ms."""

    rows: int
    files: int

    @property
    def rows_per_file(self) -> int:
        """Rows of each file."""
        return self.rows // self.files

    @property
    def keys(self) -> int:
        """Users, with 25 rows each on average."""
        return max(1, self.rows // 25)

    def at(self, row: float) -> datetime:
        """The time of a row that is not late."""
        return FIRST + timedelta(milliseconds=10 * row)

    @property
    def cutoff(self) -> datetime:
        """The instant up to which `max_age` removes rows: within a file, and of no row."""
        edge = int(self.files * (1 - KEPT_SHARE)) + 0.5
        return self.at(edge * self.rows_per_file - 0.5)

    @property
    def now(self) -> datetime:
        """The instant of `ttl`."""
        return self.at(self.rows) + timedelta(days=10)


def make_table(root: Path, size: Size, *, vectors: bool) -> None:
    """Write the data files and a log of one entry, in which deletion vectors are enabled or not."""
    (root / "_delta_log").mkdir(parents=True)
    random = np.random.default_rng(_SEED)
    actions = [_protocol(vectors=vectors), _metadata(vectors=vectors)]
    actions += [_add(root, size, number, random) for number in range(size.files)]
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (root / "_delta_log" / f"{0:020}.json").write_text(text, encoding="utf-8")


def copy_table(source: Path, target: Path) -> None:
    """Make a fresh copy; data files are hard links, because they are never changed in place."""
    shutil.copytree(source / "_delta_log", target / "_delta_log")
    for file in source.glob("*.parquet"):
        os.link(file, target / file.name)


def data_files(root: Path) -> list[Path]:
    """The data files of a copy that nothing has changed yet, oldest rows first."""
    return sorted(root.glob("part-*.parquet"))


def _add(root: Path, size: Size, number: int, random: np.random.Generator) -> dict[str, Any]:
    rows = _rows(size, number, random)
    path = root / f"part-{number:05}.parquet"
    pq.write_table(rows, path, compression="snappy", row_group_size=131_072)
    limits = {name: pc.min_max(rows[name]).as_py() for name in rows.column_names if name != "body"}
    stats = {
        "numRecords": rows.num_rows,
        "minValues": {name: _stat(each["min"], up=False) for name, each in limits.items()},
        "maxValues": {name: _stat(each["max"], up=True) for name, each in limits.items()},
        "nullCount": {name: rows[name].null_count for name in limits},
    }
    return {
        "add": {
            "path": path.name,
            "partitionValues": {},
            "size": path.stat().st_size,
            "modificationTime": int(FIRST.timestamp() * 1000),
            "dataChange": True,
            "stats": json.dumps(stats),
        }
    }


def _stat(value: Any, *, up: bool) -> Any:
    """A bound as Spark writes it: times in whole milliseconds."""
    if not isinstance(value, datetime):
        return value
    cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
    whole = cut + timedelta(milliseconds=1) if up and cut != value else cut
    return whole.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rows(size: Size, number: int, random: np.random.Generator) -> pa.Table:
    count = size.rows_per_file
    seq = np.arange(number * count, (number + 1) * count)
    late = np.where(random.random(count) < LATE, random.integers(0, 3_600_000_000, count), 0)
    ts = int(FIRST.timestamp() * 1e6) + seq * 10_000 - late
    now = int(size.now.timestamp() * 1e6)
    day = 86_400_000_000
    due = random.random(count) < DUE
    later = now + random.integers(day, 300 * day, count)
    expires = np.where(due, now - random.integers(0, day, count), later)
    tenants = pa.array([f"tenant-{tenant:02}" for tenant in range(TENANTS)])
    body = pc.binary_join_element_wise(
        pa.array(random.integers(0, 1 << 62, count)).cast(pa.string()),
        pa.array(random.integers(0, 1 << 62, count)).cast(pa.string()),
        "-",
    )
    return pa.table(
        {
            "seq": seq,
            "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")),
            "tenant": tenants.take(pa.array(random.integers(0, TENANTS, count))),
            "user_id": random.integers(0, size.keys, count),
            "expires_at": pa.array(expires).cast(pa.timestamp("us", "UTC")),
            "body": body,
        },
        schema=_ARROW,
    )


def _protocol(*, vectors: bool) -> dict[str, Any]:
    if not vectors:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        }
    }


def _metadata(*, vectors: bool) -> dict[str, Any]:
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in _TYPES.items()
    ]
    return {
        "metaData": {
            "id": "7b0c1d52-1f2e-4f0e-9a39-5f8f3f1d2c10",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": {"delta.enableDeletionVectors": "true"} if vectors else {},
            "createdTime": int(FIRST.timestamp() * 1000),
        }
    }
