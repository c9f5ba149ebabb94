"""The tables of a benchmark: written once by the engine's own append, then copied for every run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import convert_to_deltalake

import retention
from benchmarks.tasks import FIRST_TS_NS, STEP_NS, STREAM, Size
from retention.core import message_rows
from retention.ingest.append import append_rows

SHORTEST, LONGEST = 80, 120
"""Bytes of the first and the last payload: sizes grow, so that a share of the bytes ends inside a segment."""
_SEED = 20_250_101


def make_table(
    warehouse: Path, size: Size, subjects: int, *settings: str, name: str = "orders.{}"
) -> int:
    """Write a warehouse with one stream, one file per segment; returns its bytes by the broker's accounting.

    Args:
        warehouse: the directory to make.
        size: the size of the table.
        subjects: the number of subjects, of which each message has one at random.
        settings: more settings of the stream, each as YAML.
        name: the format of a subject's name, of its number.
    """
    warehouse.mkdir(parents=True)
    span_ms = size.messages * STEP_NS // 1_000_000
    layout = f"segment_size: 1TiB, segment_span: {span_ms}ms"
    write_config(warehouse, ", ".join((layout, *settings)))
    stream = retention.open_warehouse(warehouse, engine="local").stream(STREAM)
    return append_rows(stream.opened, _batches(size, subjects, name)).bytes


def write_config(warehouse: Path, settings: str) -> None:
    """Write the `retention.yaml` of a warehouse with these settings of its stream."""
    text = f'streams:\n  - {{name: {STREAM}, subjects: ["orders.>"], {settings}}}\n'
    (warehouse / "retention.yaml").write_text(text, encoding="utf-8")


def ttl_settings(layout: str) -> str:
    """The settings of a stream of messages with TTLs, with this layout of files."""
    return "allow_msg_ttl: true" + ("" if layout == "sequence" else f", layout: {layout}")


def messages_of(warehouse: Path) -> Path:
    """The stream's table in a warehouse."""
    return warehouse / "streams" / STREAM / "messages"


def copy_warehouse(source: Path, target: Path) -> None:
    """Make a fresh copy to work on; data files are hard links, because they are never changed in place."""
    shutil.copytree(source, target, copy_function=_copy)


def copy_data_files(source: Path, target: Path) -> None:
    """Make a fresh copy of the stream's data files only, in their directories below `target`."""
    found = messages_of(source)
    for file in found.rglob("segment=*/*.parquet"):
        placed = target / file.relative_to(found)
        placed.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, placed)


def copy_as_flat_table(source: Path, target: Path) -> None:
    """Make an unpartitioned Delta table of the stream's data files at `target`."""
    target.mkdir(parents=True)
    for number, file in enumerate(sorted(messages_of(source).rglob("segment=*/*.parquet"))):
        os.link(file, target / f"{number:06}.parquet")
    convert_to_deltalake(str(target))


def fingerprint(directory: Path) -> list[tuple[str, int, int]]:
    """Name, length and modification time of every data file below a directory."""
    found = [(file, file.stat()) for file in sorted(directory.rglob("segment=*/*.parquet"))]
    return [(str(file), status.st_size, status.st_mtime_ns) for file, status in found]


def survivors(files: list[Path]) -> tuple[int, int]:
    """The number of messages in data files, and the sum of their sequences."""
    return totals_of(pq.ParquetFile(file).read(columns=["seq"])["seq"].to_numpy() for file in files)


def totals_of(parts: Iterable[np.ndarray]) -> tuple[int, int]:
    """The number of sequences, and their sum."""
    columns = list(parts)
    return sum(map(len, columns)), sum(int(column.sum()) for column in columns)


def table_figures(files: list[Path]) -> dict[str, float]:
    """Files, their row groups and bytes, and the seconds to read all their columns."""
    footers = [pq.read_metadata(file) for file in files]
    started = time.perf_counter()
    for file in files:
        pq.read_table(file, partitioning=None)
    return {
        "files": len(files),
        "row_groups": sum(footer.num_row_groups for footer in footers),
        "file_bytes": sum(file.stat().st_size for file in files),
        "scan_seconds": time.perf_counter() - started,
    }


def _copy(source: str, target: str) -> None:
    if "segment=" in source and "/messages/" in source and source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _batches(size: Size, subjects: int, name: str) -> Iterator[pa.Table]:
    random = np.random.default_rng(_SEED)
    names = pa.array([name.format(number) for number in range(subjects)])
    for start in range(0, size.total, size.messages):
        numbers = np.arange(start, start + size.messages)
        drawn = pa.array(random.integers(0, subjects, size.messages))
        raw = pa.table(
            {
                "subject": names.take(drawn),
                "headers": pa.nulls(size.messages, pa.binary()),
                "payload": payloads(
                    random, SHORTEST + (LONGEST - SHORTEST) * numbers // size.total
                ),
                "ts_ns": FIRST_TS_NS + numbers * STEP_NS,
            }
        )
        yield message_rows.complete_rows(raw, "file")


def payloads(random: np.random.Generator, lengths: np.ndarray) -> pa.Array:
    """Payloads of hexadecimal digits, which compress to about half."""
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    digits = random.bytes(int(offsets[-1]) // 2 + 1).hex().encode()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)
