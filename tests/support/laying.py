"""Streams laid out file by file on real stores, so that a test controls the content of each segment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse, open_warehouse
from retention.context.context import OpenedStream
from retention.core.message_rows import complete_rows
from retention.core.table_updates import SetNextSeq, SetOpenBase
from retention.datafile.parquet import describe, stats_table, write_messages
from retention.engines.select import EngineName
from retention.ports import Swap
from retention.schemas.files import LOGGED_FILES

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
NEVER_BLOCK = b"NATS/1.0\r\nNats-TTL: never\r\n\r\n"


@dataclass(frozen=True)
class Laid:
    """A message to store."""

    seq: int
    subject: str = "a"
    ts_ns: int = START
    payload: bytes = b""
    never: bool = False
    headers: bytes | None = None
    """The headers, unless `never` is set."""


@dataclass(frozen=True)
class File:
    """One data file: the base of its segment and its messages."""

    base: int
    messages: Sequence[Laid]


def stored_as(format_: str) -> dict[str, Any]:
    """The settings of a format; `delta-vectors` is Delta with deletion vectors."""
    name, _, vectors = format_.partition("-")
    return {"format": name} | ({"vectors": True} if vectors else {})


def warehouse_with(
    folder: Path, format_: str, now_ns: int, engine: EngineName = "local", **limits: Any
) -> Warehouse:
    """A warehouse with one configured stream, ORDERS, and a stopped clock."""
    folder.mkdir(parents=True, exist_ok=True)
    stream = {"name": "ORDERS", "subjects": [">"], "no_ack": True, **limits}
    config = {"warehouse": ".", "defaults": stored_as(format_), "streams": [stream]}
    path = folder / "retention.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")
    return open_warehouse(path, engine=engine, clock=lambda: now_ns)


def laid_stream(
    folder: Path, format_: str, now_ns: int, segments: int = 0, **limits: Any
) -> OpenedStream:
    """The stream of `warehouse_with`, with initial segments of ten messages on s.0, s.1 and s.2 in turn."""
    opened = warehouse_with(folder, format_, now_ns, **limits).stream("ORDERS").opened
    if segments and not opened.store.exists():
        lay(opened, even_segments(segments, 10))
    return opened


def forty(folder: Path, format_: str, **settings: Any) -> Stream:
    """A stream of four segments of ten messages on s.0, s.1 and s.2 in turn."""
    stream = warehouse_with(folder, format_, START + 100 * SECOND, **settings).stream("ORDERS")
    if not stream.opened.store.exists():
        lay(stream.opened, even_segments(4, 10))
    return stream


def lay(opened: OpenedStream, files: Sequence[File], *, sealed: bool = False) -> None:
    """Commit the files unchanged; with `sealed` the last segment is sealed, too."""
    opened.store.create()
    staged = []
    for file in files:
        [target] = opened.store.stage(0, file.base)
        write_messages(target.location, [rows_of(file.messages)])
        staged.append(describe(target).stats)
    last = max((m.seq for file in files for m in file.messages), default=0)
    base = max((file.base for file in files), default=1)
    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=stats_table(staged),
        metadata={"run": "laid"},
        updates=[SetNextSeq(0, last + 1), SetOpenBase(0, last + 1 if sealed else base)],
    )
    opened.store.commit(swap, opened.store.snapshot())


def even_segments(
    count: int, each: int, step_ns: int = SECOND, subjects: int = 3, payload: bytes = b"x"
) -> list[File]:
    """Segments of `each` messages, one file per segment, one message every `step_ns` from `START` on."""
    return [
        File(
            base=number * each + 1,
            messages=[
                Laid(seq, f"s.{seq % subjects}", START + seq * step_ns, payload)
                for seq in range(number * each + 1, (number + 1) * each + 1)
            ],
        )
        for number in range(count)
    ]


def held(warehouse: Warehouse, name: str = "ORDERS") -> pa.Table:
    """All messages of a stream, all columns, in order."""
    return pa.concat_tables(warehouse.stream(name).messages())


def rows_of(messages: Sequence[Laid]) -> pa.Table:
    """Messages as rows of a data file."""
    raw = pa.table(
        {
            "seq": pa.array([m.seq for m in messages], pa.int64()),
            "subject": [m.subject for m in messages],
            "ts_ns": pa.array([m.ts_ns for m in messages], pa.int64()),
            "headers": pa.array(
                [NEVER_BLOCK if m.never else m.headers for m in messages], pa.binary()
            ),
            "payload": pa.array([m.payload for m in messages], pa.binary()),
        }
    )
    return complete_rows(raw, "file")
