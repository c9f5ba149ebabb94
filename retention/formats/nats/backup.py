"""NATS stream backups, v2 archives: reads and writes a stream's state, its consumers and every message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.errors import DamagedError, RefusedError, UsageError
from retention.formats.nats import tar
from retention.formats.nats.account import AGAIN, NUMBERS, STATE, check_account
from retention.formats.s2 import stream as s2
from retention.schemas.bounds import MAX_SEQ
from retention.storage import files
from retention.storage.checksum import parse_json

RAW_ROWS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""One row per message of a backup: the input columns of `retention.core.message_rows.complete_rows`."""

DIRECTORY_CONFIG = "backup.json"
DIRECTORY_ARCHIVE = "stream.tar.s2"
"""The names of the files that `nats stream backup` writes into its directory, and `nats stream restore` reads."""

_CONSUMERS = "consumers/"

_BATCH_BYTES = 64 << 20
_UINT64 = 2**64


@dataclass(frozen=True)
class Backup:
    """A v2 archive: its state and consumers are read, and its messages can be read."""

    path: Path
    """The path of the archive."""
    name: str
    state: Mapping[str, Any]
    """The server's `state.json`: messages, bytes, first_seq, last_seq, times, consumer_count."""
    consumers: Mapping[str, Mapping[str, Any]]
    """Consumer name → `config` and `state`."""
    config: Mapping[str, Any] | None
    """The stream's configuration, if a `backup.json` is beside the archive."""

    def batches(self, rows: int = 65_536) -> Iterator[pa.Table]:
        """Read the messages in order of sequence, shape `RAW_ROWS`; refuse those that RESTORE refuses.

        Args:
            rows: the minimum number of rows of a table except the last; 64 MiB end a table earlier.

        Raises:
            DamagedError: the archive is truncated or malformed, or sequences do not rise, or begin before the account.
            RefusedError: a message does not fit a table.
        """
        pending: list[pa.Table] = []
        for table in self._messages():
            pending.append(table)
            buffered = sum(part.num_rows for part in pending), sum(part.nbytes for part in pending)
            if buffered[0] >= rows or buffered[1] >= _BATCH_BYTES:
                yield pa.concat_tables(pending)
                pending = []
        if pending:
            yield pa.concat_tables(pending)

    def _messages(self) -> Iterator[pa.Table]:
        last = 0
        for entries in tar.read(self.path):
            messages = entries.slice(_count_documents(entries)) if last == 0 else entries
            if not messages.num_rows:
                continue
            self._refuse_beyond(messages["seq"])
            seqs = np.concatenate([[last], messages["seq"].to_numpy()])
            wrong = np.flatnonzero(seqs[1:] <= seqs[:-1])
            if len(wrong):
                raise DamagedError(
                    f"{self.path}: sequence {seqs[wrong[0] + 1]} follows sequence {seqs[wrong[0]]}, "
                    f"but sequences must rise; {AGAIN}"
                )
            self._refuse_below(int(seqs[1]))
            last = int(seqs[-1])
            yield self._raw_rows(messages)

    def _refuse_below(self, seq: int) -> None:
        first = self.state["first_seq"]
        if not 0 < first <= seq:
            raise DamagedError(
                f"{self.path}: first_seq is {first} in {STATE} and {seq} in the archive, and no server restores "
                f"earlier messages; {AGAIN}"
            )

    def _refuse_beyond(self, seqs: pa.ChunkedArray) -> None:
        """Refuse sequences above a table's maximum; the server's are u64, and the upper half is negative as int64."""
        beyond = seqs.filter(pc.or_(pc.less(seqs, 0), pc.greater(seqs, MAX_SEQ)))
        if len(beyond):
            raise DamagedError(
                f"{self.path}: it holds sequence {beyond[0].as_py() % _UINT64}, and a table's sequences end at 2^62; "
                "nothing was imported; copy the messages into a stream with a lower first sequence, and back that "
                "one up"
            )

    def _raw_rows(self, messages: pa.Table) -> pa.Table:
        try:
            subjects = messages["name"].cast(pa.string())
        except pa.ArrowInvalid as error:
            seq, subject = _not_utf8(messages)
            raise RefusedError(
                f"{self.path}: the subject {subject!r} of sequence {seq} is not UTF-8, which a table cannot hold; "
                "nothing was imported; delete that message in the broker and make the backup again"
            ) from error
        empty = pc.equal(pc.binary_length(messages["headers"]), 0)
        headers = pc.if_else(empty, pa.scalar(None, pa.binary()), messages["headers"])
        columns = [messages["seq"], subjects, messages["ts_ns"], headers, messages["payload"]]
        return pa.table(columns, schema=RAW_ROWS)


def read_backup(path: Path | str) -> Backup:
    """Open a v2 archive, or a directory of `nats stream backup` with one.

    Raises:
        UsageError: there is no such file, or the directory has no archive or several.
        DamagedError: the file is not a v2 archive, is truncated or malformed, or no server restores its account.
    """
    given = Path(path)
    if not given.exists():
        raise UsageError(f"{given}: no such file or directory; name a backup that exists")
    file, config = _in_directory(given) if given.is_dir() else (given, None)
    documents = _documents(file)
    state = documents.pop(STATE, {})
    if not all(isinstance(state.get(name), int) for name in NUMBERS):
        numbers = ", ".join(NUMBERS)
        raise tar.damaged(file, 0, f"it begins without a {STATE} that has {numbers}")
    consumers = {name.removeprefix(_CONSUMERS): content for name, content in documents.items()}
    check_account(file, state, len(consumers))
    own_name = given.resolve().name if given.is_dir() else given.stem
    return Backup(file, str((config or {}).get("name", own_name)), state, consumers, config)


def write_backup(
    location: Path | str,
    state: Mapping[str, object],
    consumers: Mapping[str, Mapping[str, object]],
    batches: Iterable[pa.Table],
) -> None:
    """Write a v2 archive for nats-server 2.15 or later: completely, or not at all if `batches` raises.

    Args:
        location: the file; an existing one is overwritten.
        state: the server's stream state: messages, bytes, first_seq, last_seq; the number of consumers is added.
        consumers: consumer name → `config` and `state`.
        batches: tables with the columns of `RAW_ROWS`, in order of sequence.
    """
    documents = {STATE: {**state, "consumer_count": len(consumers)}}
    documents |= {f"{_CONSUMERS}{name}": dict(content) for name, content in consumers.items()}
    with files.create(str(location)) as sink:
        s2.write_frames(sink, tar.encode(documents, batches))


def _not_utf8(messages: pa.Table) -> tuple[int, bytes]:
    """The sequence and the subject of the first message with a subject that is not UTF-8."""
    for seq, name in zip(messages["seq"].to_pylist(), messages["name"].to_pylist(), strict=True):
        if name.decode(errors="replace").encode() != name:
            return seq, name
    raise AssertionError("every subject is UTF-8")


def _documents(file: Path) -> dict[str, dict[str, object]]:
    documents: dict[str, dict[str, object]] = {}
    for entries in tar.read(file):
        count = _count_documents(entries)
        for entry in entries.slice(0, count).select(["name", "payload"]).to_pylist():
            name = entry["name"].decode(errors="backslashreplace")
            if name != STATE and not name.startswith(_CONSUMERS):
                raise tar.damaged(file, 0, f"an entry {name} has no sequence")
            documents[name] = _json_object(file, name, entry["payload"])
        if count < entries.num_rows:
            break
    return documents


def _count_documents(entries: pa.Table) -> int:
    """The number of entries without a sequence before the first message."""
    return int(np.argmax(np.append(entries["seq"].to_numpy() != 0, True)))


def _in_directory(directory: Path) -> tuple[Path, dict[str, object] | None]:
    beside = directory / DIRECTORY_CONFIG
    archives = sorted(path for path in directory.iterdir() if path.is_file() and path != beside)
    if len(archives) != 1:
        names = ", ".join(path.name for path in archives) or "no file"
        raise UsageError(f"{directory}: {names} beside {DIRECTORY_CONFIG}; name the archive itself")
    if not beside.is_file():
        return archives[0], None
    config = _json_object(beside, "it", beside.read_bytes()).get("config")
    return archives[0], config if isinstance(config, dict) else None


def _json_object(file: Path, name: str, content: bytes) -> dict[str, object]:
    try:
        value = parse_json(content)
    except ValueError as error:
        raise DamagedError(f"{file}: {name} is not JSON ({error}); {AGAIN}") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{file}: {name} is not a JSON object; {AGAIN}")
    return value
