"""Export of a stream as a NATS backup: its live messages unchanged, the broker's account of them, its consumers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention.config.server_json import server_config
from retention.context.context import OpenedStream
from retention.context.position import locate, next_seq_without_table
from retention.context.topic import refuse_topic
from retention.core.counters import Counters
from retention.core.display import Displayed
from retention.core.message_rows import Storage
from retention.core.spoken_commands import command
from retention.core.units import format_instant
from retention.core.wording import counted
from retention.errors import DamagedError, RefusedError, UsageError
from retention.formats.nats.account import BackupTotals
from retention.formats.nats.backup import (
    DIRECTORY_ARCHIVE,
    DIRECTORY_CONFIG,
    RAW_ROWS,
    write_backup,
)
from retention.inspect.messages import columns_in_order
from retention.inspect.state import FileContents, contents_of
from retention.inspect.subject_count import count_subjects
from retention.schemas.files import FILE_STATS
from retention.storage import files
from retention.storage.outputs import OutputKind, begins, check_output, is_stream
from retention.storage.places import place_of
from retention.stores.consumer_table import ConsumerTable

_ARCHIVE = OutputKind("a NATS backup", begins(r"\xff\x06\x00\x00(?:sNaPpY|S2sTwO)"))
_REQUEST = OutputKind("what a NATS backup is restored with", begins(r'\{\s*"config":'))
_NO_TIME = "0001-01-01T00:00:00Z"
"""The time that a server writes for a missing message."""


@dataclass(frozen=True)
class Exported(Displayed):
    """A written backup: its content and location."""

    stream: str
    file: str
    """Location of the archive."""
    request: str
    """Location of the other input of STREAM.RESTORE: configuration and state, JSON."""
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    consumers: int


class _OtherBytesError(Exception):
    """The bytes of the messages by the stream's storage, which differ from the sum of their sizes."""


def export_nats_backup(opened: OpenedStream, target: str | Path) -> Exported:
    """Write a v2 backup of a stream at its newest version, atomically; a server of 2.15 or later restores it.

    Args:
        opened: the stream.
        target: the archive, local or on an object store, beside which `<target>.json` will hold the configuration; or a
            directory (existing, or with a trailing `/`) for `nats stream restore`.

    Raises:
        UsageError: it is a topic, or the target or a file beside it exists and is not a backup.
        RefusedError: the target is an existing backup.
        DamagedError: a file of the stream cannot be read, or has an unexpected number of messages.
    """
    refuse_topic(
        opened.config,
        "and only streams can be exported as a NATS backup",
        f"print its messages with {command('messages', opened.name, options='--format jsonl')}",
    )
    archive, request = _places(place_of(str(target)))
    if is_stream(archive):
        raise UsageError(f"{archive}: a backup is two files; name a file on a disk")
    check_output(archive, _ARCHIVE)
    check_output(request, _REQUEST)
    if files.length(archive):
        raise _in_the_way(archive)
    written = _written(opened, archive, request)
    numbers = {name: written[name] for name in ("messages", "bytes", "first_seq", "last_seq")}
    return Exported(opened.name, archive, request, **numbers, consumers=written["consumer_count"])


def _in_the_way(place: str) -> RefusedError:
    return RefusedError(
        f"{place}: already exists, and an export overwrites nothing; nothing was written; name another place, or "
        "remove that file"
    )


def _places(target: str) -> tuple[str, str]:
    """The locations of the archive, and of the configuration with the state."""
    if target.endswith("/") or (not files.is_remote(target) and Path(target).is_dir()):
        return files.join(target, DIRECTORY_ARCHIVE), files.join(target, DIRECTORY_CONFIG)
    return target, f"{target}.json"


def _written(opened: OpenedStream, archive: str, request: str) -> dict[str, Any]:
    """Write the request, then the archive, which appears once complete; return the state at its beginning."""
    stored, counters, subjects = FILE_STATS.empty_table(), Counters(), 0
    next_seq = next_seq_without_table(opened)
    if opened.table.exists():
        position = locate(opened)
        stored, next_seq = position.inventory.files, position.next_seq
        subjects = count_subjects(opened, position.inventory)
        counters = position.snapshot.counters
    consumers = {
        record.consumer: {"config": record.config, "state": record.state.as_json()}
        for record in ConsumerTable(opened.root).live(counters)
    }
    state = _state(contents_of(stored, next_seq), subjects, len(consumers))

    def rows() -> Iterator[pa.Table]:
        messages = columns_in_order(opened.store, stored, RAW_ROWS.names)
        yield from _checked(opened.name, messages, state, opened.config.storage)
        _keep_request(request, {"config": server_config(opened.config), "state": state})

    try:
        write_backup(archive, state, consumers, rows())
    except _OtherBytesError as error:
        state["bytes"] = error.args[0]
        write_backup(archive, state, consumers, rows())
    return state


def _keep_request(place: str, request: dict[str, object]) -> None:
    """Write the request, unless a killed export left an identical one."""
    content = json.dumps(request, indent=2, ensure_ascii=False).encode()
    existing = files.read_bytes(place)
    if existing is None:
        files.replace(place, content)
    elif existing != content:
        raise _in_the_way(place)


def _state(held: FileContents, subjects: int, consumers: int) -> dict[str, object]:
    """The broker's account of a stream, with its keys in order."""
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
    stream: str, tables: Iterable[pa.Table], state: dict[str, object], storage: Storage
) -> Iterator[pa.Table]:
    """The tables, followed by an error if they differ from the state."""
    totals = BackupTotals()
    for table in tables:
        if table.num_rows:
            totals.add(table)
            yield table
    if totals.messages != state["messages"]:
        raise DamagedError(
            f"{stream}: its files have {counted(totals.messages, 'message')} but its statistics count "
            f"{state['messages']:,}; nothing was written; check it with `retention doctor`"
        )
    if totals.bytes[storage] != state["bytes"]:
        raise _OtherBytesError(totals.bytes[storage])
