"""Tables of other owners, as their usual writers leave them: a schema a source, four files of 40 days."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from deltalake import write_deltalake

ROWS, FILES = 400, 4
_US = pa.timestamp("us", "UTC")
_INT = pa.int64()


def write_table(folder: Path, kind: str, now: datetime) -> str:
    """Write one of `TABLES`, whose newest row is a few hours older than `now`, and return its location."""
    source = random.Random(3)
    step = timedelta(days=40) / ROWS
    events = [now - step * (ROWS - at) - timedelta(hours=2 * source.random()) for at in range(ROWS)]
    arrivals = [event + timedelta(hours=1 + source.random()) for event in events]
    table = pa.table(TABLES[kind](source, events, arrivals))
    place = folder / kind
    for start in range(0, ROWS, ROWS // FILES):
        write_deltalake(place, table.slice(start, ROWS // FILES), mode="append")
    return str(place)


def _kafka(source: random.Random, _: list[datetime], arrivals: list[datetime]) -> dict[str, Any]:
    return {
        "key": [f"u{source.randrange(90)}".encode() for _ in arrivals],
        "value": [b"x" * 40] * ROWS,
        "partition": pa.array([at % 6 for at in range(ROWS)], pa.int32()),
        "offset": pa.array([at // 6 for at in range(ROWS)], _INT),
        "timestamp": pa.array(arrivals, _US),
        "timestampType": pa.array([0] * ROWS, pa.int32()),
    }


def _clicks(
    source: random.Random, events: list[datetime], arrivals: list[datetime]
) -> dict[str, Any]:
    born = [date(1960, 1, 1) + timedelta(days=source.randrange(15000)) for _ in events]
    return {
        "event_id": [str(UUID(int=source.getrandbits(128))) for _ in events],
        "event_ts": pa.array(events, _US),
        "_ingested_at": pa.array(arrivals, _US),
        "tenant_id": [f"t{source.randrange(12)}" for _ in events],
        "birth_date": pa.array(born),
        "event_date": pa.array([event.date() for event in events]),
    }


def _changes(
    source: random.Random, events: list[datetime], arrivals: list[datetime]
) -> dict[str, Any]:
    return {
        "id": pa.array([source.randrange(200) for _ in events], _INT),
        "op": ["u"] * ROWS,
        "ts_ms": pa.array([int(each.timestamp() * 1000) for each in arrivals], _INT),
        "lsn": pa.array([10**9 + at * 7 for at in range(ROWS)], _INT),
        "updated_at": pa.array(events, _US),
    }


def _sessions(
    source: random.Random, events: list[datetime], arrivals: list[datetime]
) -> dict[str, Any]:
    never = datetime(9999, 12, 31, tzinfo=UTC)
    ends = [never if at % 50 == 0 else each + timedelta(days=30) for at, each in enumerate(events)]
    return {
        "session_id": [str(UUID(int=source.getrandbits(128))) for _ in events],
        "created_at": pa.array(events, _US),
        "last_seen_at": pa.array(arrivals, _US),
        "expires_at": pa.array([end if end.day != 7 else None for end in ends], _US),
        "size_bytes": pa.array([source.randrange(9000) for _ in events], _INT),
    }


def _devices(source: random.Random, events: list[datetime], _: list[datetime]) -> dict[str, Any]:
    return {
        "device": [f"d{source.randrange(30)}" for _ in events],
        "time": pa.array([int(event.timestamp()) for event in events], _INT),
        "value": [source.random() for _ in events],
        "seq_no": pa.array(range(ROWS), _INT),
        "mixed": pa.array([10**9 if at % 2 else 10**12 for at in range(ROWS)], _INT),
    }


def _invoices(source: random.Random, events: list[datetime], _: list[datetime]) -> dict[str, Any]:
    return {
        "invoice_no": pa.array(range(ROWS), _INT),
        "due_date": pa.array([(event + timedelta(days=60)).date() for event in events]),
        "created": [event.isoformat() for event in events],
        "customer": [f"c{source.randrange(50)}" for _ in events],
    }


TABLES: dict[str, Callable[[random.Random, list[datetime], list[datetime]], dict[str, Any]]] = {
    "kafka": _kafka,
    "clicks": _clicks,
    "changes": _changes,
    "sessions": _sessions,
    "devices": _devices,
    "invoices": _invoices,
}
"""Kind → its columns, from event and arrival times."""
