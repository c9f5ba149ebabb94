"""Exporting a stream as a NATS backup: its live messages as they are, the broker's account of them, its consumers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention import files
from retention.config.server import server_config
from retention.errors import DamagedError, RefusedError
from retention.formats.nats_backup import (
    DIRECTORY_ARCHIVE,
    DIRECTORY_CONFIG,
    RAW_ROWS,
    Totals,
    write_backup,
)
from retention.opened import OpenedStream
from retention.passes.position import FIRST_SEQ, locate
from retention.rows import Storage
from retention.segments import Counters
from retention.units import format_instant
from retention.views.latest import last_seqs
from retention.views.messages import columns_in_order
from retention.views.state import Held, held_by
from retention.writing.imports import kept_consumers
from schemas.files import FILE_STATS

_NO_TIME = "0001-01-01T00:00:00Z"
"""How a server writes the time of a message that is not there."""


@dataclass(frozen=True)
class Exported:
    """What a backup holds that was written, and where it is."""

    stream: str
    file: str
    """The archive."""
    request: str
    """What STREAM.RESTORE takes with it: configuration and state, JSON."""
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumers: int


class _OtherBytesError(Exception):
    """The messages' bytes by the stream's storage are not the sum of their sizes; the argument is what they are."""


def export_nats_backup(opened: OpenedStream, target: str | Path) -> Exported:
    """Write a v2 backup of a stream at its newest version, whole or not at all; a server of 2.15 or later restores it.

    Args:
        opened: the stream.
        target: the archive, local or on an object store, beside which `<target>.json` will hold the configuration;
            or a directory (it exists, or `/` stands at the end), which becomes one that `nats stream restore` takes.

    Raises:
        RefusedError: something is there already.
        DamagedError: a file of the stream cannot be read, or holds another number of messages than it must.
    """
    archive, request = _places(str(target))
    for place in (archive, request):
        if files.length(place) is not None:
            raise RefusedError(
                f"{place}: is there already, and an export overwrites nothing; nothing was written; name another "
                "place, or remove that file"
            )
    written = _written(opened, archive)
    content = {"config": server_config(opened.config), "state": written}
    files.replace(request, json.dumps(content, indent=2, ensure_ascii=False).encode())
    numbers = {name: written[name] for name in ("messages", "bytes", "first_seq", "last_seq")}
    return Exported(opened.name, archive, request, **numbers, consumers=written["consumer_count"])


def _places(target: str) -> tuple[str, str]:
    """Where the archive goes, and the configuration with the state."""
    if target.endswith("/") or (not files.is_remote(target) and Path(target).is_dir()):
        return files.join(target, DIRECTORY_ARCHIVE), files.join(target, DIRECTORY_CONFIG)
    return target, f"{target}.json"


def _written(opened: OpenedStream, archive: str) -> dict[str, Any]:
    """Write the archive; the state that it begins with."""
    found, next_seq, counters = (
        FILE_STATS.empty_table(),
        opened.config.first_seq or FIRST_SEQ,
        Counters(),
    )
    if opened.store.exists():
        position = locate(opened)
        found, next_seq = position.inventory.files, position.next_seq
        counters = position.snapshot.counters
    consumers = kept_consumers(opened, counters)
    state = _state(held_by(found, next_seq), len(last_seqs(opened.store, found)), len(consumers))

    def write() -> None:
        messages = columns_in_order(opened.store, found, RAW_ROWS.names)
        checked = _checked(opened.name, messages, state, opened.config.storage)
        write_backup(archive, state, consumers, checked)

    try:
        write()
    except _OtherBytesError as error:
        state["bytes"] = error.args[0]
        write()
    return state


def _state(held: Held, subjects: int, consumers: int) -> dict[str, Any]:
    """The broker's account of a stream, with its keys in its order."""
    return {
        "messages": held.messages,
        "bytes": held.bytes,
        "first_seq": held.first_seq,
        "first_ts": _NO_TIME if held.first_ts_ns is None else format_instant(held.first_ts_ns),
        "last_seq": held.last_seq,
        "last_ts": _NO_TIME if held.last_ts_ns is None else format_instant(held.last_ts_ns),
        "num_subjects": subjects,
        "num_deleted": held.last_seq + 1 - held.first_seq - held.messages,
        "consumer_count": consumers,
    }


def _checked(
    stream: str, tables: Iterable[pa.Table], state: dict[str, Any], storage: Storage
) -> Iterator[pa.Table]:
    """The tables, and at their end an error if they are not what the state says."""
    totals = Totals()
    for table in tables:
        if table.num_rows:
            totals.add(table)
            yield table
    if totals.messages != state["messages"]:
        raise DamagedError(
            f"{stream}: its files hold {totals.messages:,} messages where its statistics count {state['messages']:,}; "
            "nothing was written; look it over with `retention doctor`"
        )
    if totals.bytes[storage] != state["bytes"]:
        raise _OtherBytesError(totals.bytes[storage])
