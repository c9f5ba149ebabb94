"""Three sources that grow hourly, and their hourly ingest: `growing_sources.py FOLDER HOURS`.

A restarted process continues where the killed one stopped: each hour of a source is written once,
with the same result as by one process. The sources are a Delta table with OPTIMIZE and DELETE by
others, a directory in the layout of Kafka Connect with occasionally rewritten files, and a
directory of growing JSON lines. All of them have late rows and late files.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from retention.engines.spark.session import session
from retention.jobs import ingest
from tests.support.sandboxes import configured

HOUR_S = 3600
START_S = 1_760_000_400
"""A whole hour: 2025-10-09T09:00:00Z."""
FIRST_ROWS = int(os.environ.get("RETENTION_INGEST_ROWS", "2000000"))
"""Rows of the Delta table before the first hour."""
ROWS = 1_000
"""Rows per hour."""
KAFKA_PARTITIONS = 3
STREAMS = [
    {"name": "EVENTS", "subjects": ["events.>"], "format": "delta"},
    {"name": "SHOP", "subjects": ["shop.>"], "format": "delta"},
    {"name": "LINES", "subjects": ["lines.>"], "format": "parquet"},
]
_WRITER = "generator"


@dataclass(frozen=True)
class Row:
    """A row of a source, and its message."""

    id: int
    at_s: int
    """Its time, seconds since the epoch."""
    hour: int
    """The hour of its arrival."""


def event_rows(hour: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers and times of the rows of one hour; one in ten is up to four days late.

    Hour -1 has all earlier rows.
    """
    first = 0 if hour < 0 else FIRST_ROWS + hour * ROWS
    ids = np.arange(first, FIRST_ROWS if hour < 0 else first + ROWS)
    if hour < 0:
        return ids, START_S - HOUR_S + ids % HOUR_S
    late = np.where(ids % 10 == 3, (ids * 7919) % (4 * 24 * HOUR_S), 0)
    return ids, START_S + hour * HOUR_S + (ids * 31) % HOUR_S - late


def grow_events(folder: Path, hour: int) -> None:
    """Append an hour to the Delta table, with its owners' OPTIMIZE every day and DELETE every other day."""
    place = str(folder / "events")
    last = DeltaTable(place).transaction_version(_WRITER) if Path(place).exists() else None
    if last is not None and last > hour:
        return
    ids, times = event_rows(hour)
    rows = pa.table(
        {
            "id": ids,
            "tenant": pa.array([f"t{number % 8}" for number in ids.tolist()]),
            "at": pa.array(times * 1_000_000, pa.timestamp("us", "UTC")),
        }
    )
    done = CommitProperties(app_transactions=[Transaction(_WRITER, hour + 1)])
    write_deltalake(place, rows, mode="append", commit_properties=done)
    if hour % 24 == 11:
        DeltaTable(place).optimize.compact(target_size=4 << 20)
    if hour % 48 == 20:
        taken = FIRST_ROWS + (hour - 1) * ROWS
        DeltaTable(place).delete(f"id = {taken}")


def grow_shop(folder: Path, hour: int) -> None:
    """Write a file for each partition, like Kafka Connect; rewrite that of the previous hour once a day."""
    for partition in range(KAFKA_PARTITIONS):
        directory = folder / "topics" / "shop" / f"partition={partition}"
        directory.mkdir(parents=True, exist_ok=True)
        first = hour * ROWS
        file = directory / f"shop+{partition}+{first:010d}.snappy.parquet"
        if not file.exists():
            _replace(file, _shop_table(partition, first, hour))
        if hour % 6 == 5:
            old = START_S - 40 * 24 * HOUR_S
            os.utime(file, (old, old))
        if hour % 24 == 7:
            again = directory / f"shop+{partition}+{first - ROWS:010d}.snappy.parquet"
            _replace(again, _shop_table(partition, first - ROWS, hour - 1))


def _shop_table(partition: int, first: int, hour: int) -> pa.Table:
    offsets = list(range(first, first + ROWS))
    values = [
        None if offset % 50 == 49 else json.dumps({"id": offset * KAFKA_PARTITIONS + partition})
        for offset in offsets
    ]
    return pa.table(
        {
            "kafka_offset": pa.array(offsets, pa.int64()),
            # Equal and decreasing times: only offsets define the order.
            "kafka_timestamp": pa.array(
                [(START_S + hour * HOUR_S - offset % 3) * 1000 for offset in offsets],
                pa.timestamp("ms", "UTC"),
            ),
            "key": pa.array([f"user {partition}.{offset}".encode() for offset in offsets]),
            "value": pa.array(
                [None if value is None else value.encode() for value in values], pa.binary()
            ),
        }
    )


def _replace(file: Path, table: pa.Table) -> None:
    hidden = file.with_name(f".{file.name}.tmp")
    pq.write_table(table, hidden, compression="snappy")
    hidden.replace(file)


def line_rows(hour: int) -> list[Row]:
    """The rows of an hour of JSON lines."""
    ids = range(hour * ROWS, (hour + 1) * ROWS)
    return [Row(number, START_S + hour * HOUR_S + number % HOUR_S, hour) for number in ids]


def grow_lines(folder: Path, hour: int) -> None:
    """Append an hour to the file of the day; every sixth hour is a separate file with an odd name."""
    day = hour // 24
    hours = [number for number in range(day * 24, hour + 1) if number % 6 != 4]
    name, content = f"day {day}.json", hours
    if hour % 6 == 4:
        name, content = f"late [{hour}] {{100%}}.json", [hour]
    text = "".join(
        json.dumps({"id": row.id, "at": datetime.fromtimestamp(row.at_s, UTC).isoformat()}) + "\n"
        for one in content
        for row in line_rows(one)
    )
    directory = folder / "lines"
    directory.mkdir(exist_ok=True)
    file = directory / name
    if file.exists() and file.stat().st_size >= len(text):
        return
    hidden = directory / "_growing"
    if file.exists():
        shutil.copy2(file, hidden)
    with hidden.open("r+b" if hidden.exists() else "wb") as out:
        out.write(text.encode())
    hidden.replace(file)


INGESTS = (
    (
        *("--stream", "EVENTS", "--source", "events", "--payload", "all"),
        *("--column", "subject=concat('events.', tenant)", "--column", "time=at"),
    ),
    (
        *("--stream", "SHOP", "--source", "topics/shop", "--source-format", "parquet"),
        *("--column", "subject=concat('shop.', subject_token(key))", "--column", "payload=value"),
        *("--column", "time=kafka_timestamp", "--tombstone", "value IS NULL"),
    ),
    (
        *("--stream", "LINES", "--source", "lines", "--source-format", "json", "--payload", "all"),
        *("--column", "subject='lines.a'", "--column", "time=cast(at AS timestamp)"),
    ),
)


def main() -> int:
    """Run the program.

    Returns:
        The exit code of the first failed ingest.
    """
    folder, hours = Path(sys.argv[1]), int(sys.argv[2])
    os.chdir(folder)
    configured(folder, *STREAMS)
    with session("ingests"):
        for hour in range(_hours_done(folder), hours):
            if hour == 0:
                grow_events(folder, -1)
            for grow in (grow_events, grow_shop, grow_lines):
                grow(folder, hour)
            for words in INGESTS:
                sys.argv = ["ingest", *words, "--quiet"]
                code = ingest.main()
                if code:
                    print(f"hour {hour}: {words[1]} ended with {code}", file=sys.stderr)
                    return code
            (folder / "hours").write_text(str(hour + 1), encoding="utf-8")
    return 0


def _hours_done(folder: Path) -> int:
    file = folder / "hours"
    return int(file.read_text(encoding="utf-8") or "0") if file.exists() else 0


if __name__ == "__main__":
    raise SystemExit(main())
