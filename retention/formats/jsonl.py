"""JSON lines, and records of Python: messages to publish, read strictly."""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from retention.core import headers
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.encoding import utf8, without_mark
from retention.errors import UsageError
from retention.formats.held_rows import HeldRows
from retention.formats.printed_lines import is_printed, stream_line
from retention.formats.records import ArrowStream, Instant, plain, records_of

Line: TypeAlias = bytes | str | Mapping[str, Any]
"""JSON text, or the object itself: a record, which may have `payload` for `data`, and bytes where text may stand."""
Given: TypeAlias = Iterable[Line] | Mapping[str, Any] | ArrowStream | Path
"""Lines or records; one record; a frame of pandas, Polars or DuckDB, or an Arrow table; a file of lines."""

PUBLISHED = pa.schema(
    [
        pa.field("subject", pa.string(), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("origin_ts_ns", pa.int64()),
        pa.field("line", pa.int64(), nullable=False),
    ]
)
"""One row per message to publish: the columns of `retention.core.message_rows.complete_rows`, and the line's number."""


@dataclass(frozen=True)
class LeftOut:
    """A line that is not published, while others of its batch are."""

    line: int
    """Its number, counted from 1; of a frame or a list that of the row."""
    reason: str
    code: int | None = None
    """The server's error code, where it answers with one."""


LeaveOut: TypeAlias = Callable[[list[LeftOut]], None]
"""A callback that is told, before a batch is committed, all lines that are not part of it; it may be told again."""


class Unread:
    """The lines that could not be read as messages, and are left out."""

    def __init__(self) -> None:
        self.lines: list[LeftOut] = []


_KEYS = frozenset(("subject", "data", "data_b64", "headers", "headers_b64", "ts_ns"))
_NAMES = {"payload": "data", "time": "ts_ns"}
_OF_PRINTED = _KEYS | {"msg_id", "origin_ts_ns"}


def parse_messages(
    lines: Iterable[Line],
    now_ns: int,
    unread: Unread | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> pa.Table:
    """Parse JSON lines, or records, into messages to publish, shape `PUBLISHED`, in their order.

    A line is an object with `subject`; `data` (text) or `data_b64` (any bytes), neither for an empty
    payload; `headers`, pairs or an object of texts and lists of texts, or `headers_b64`, the block as it is stored;
    `ts_ns`, by default `now_ns`. Empty lines are passed over. A line that `messages --format jsonl` has printed is one,
    too: its place (`partition`, `segment`, `seq`) and what follows from the rest is passed over. A record may also have
    `payload`, a text or bytes; `time`, an instant; headers as a block of bytes; and None, NaN or NaT for what it does
    not have.

    Args:
        lines: text, or bytes in UTF-8; or records.
        now_ns: the time of messages without one, nanoseconds since the epoch.
        unread: takes lines that are no such objects; without it the first one is an error.
        times: the instants that a line may give.

    Raises:
        UsageError: a line is no such object; the message names the line's number.
    """
    read = partial(_message, now_ns, times)
    return table_of_lines(lines, read, PUBLISHED, partial(plain, names=_NAMES, times=times), unread)


def table_of_lines(
    lines: Iterable[Line],
    read: Callable[[dict[str, Any]], tuple[Any, ...]],
    schema: pa.Schema,
    as_object: Callable[[Mapping[Any, Any]], dict[str, Any]],
    unread: Unread | None = None,
) -> pa.Table:
    """Read the objects of JSON lines, or records, into a table, one a row; empty lines are passed over.

    Args:
        lines: text, or bytes in UTF-8; or records.
        read: makes a row of an object, all its columns but the last; raises a ValueError for a wrong object.
        schema: the schema of the table; the last column is the line's number.
        as_object: makes of a record the object that a line has; raises a ValueError for a wrong one.
        unread: takes lines that are no such objects; without it the first one is an error.

    Raises:
        UsageError: a line is no such object; the message names the line's number.
    """
    held = HeldRows(schema)
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    for number, line in enumerate(lines, start=1):
        row = None
        try:
            if isinstance(line, Mapping):
                row = read(as_object(line))
            elif text := text_of_line(line):
                row = read(_checked(decode(text)))
        except (ValueError, RecursionError) as error:
            problem = _json_problem(error) if isinstance(error, json.JSONDecodeError) else error
            if unread is not None:
                unread.lines.append(LeftOut(number, str(problem)))
                continue
            raise UsageError(
                f"line {number}: {problem}; nothing was stored; correct it and try again"
            ) from error
        if row is not None:
            held.add((*row, number))
    return held.table()


def text_of_line(line: Any) -> str:
    """The text of a line; empty, if nothing but whitespace is in it. A byte order mark before it is no part of it.

    Raises:
        ValueError: it is no text, or not in UTF-8.
    """
    if not isinstance(line, str | bytes | bytearray):
        kind = type(line).__name__
        raise ValueError(f"it is a {kind}, neither JSON text nor a dict")  # noqa: TRY004
    text = without_mark(line) if isinstance(line, str) else utf8(bytes(line))
    return "" if text.isspace() else text


def _checked(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  (the caller adds the line's number)
    return message


def refuse_unknown(message: dict[str, Any], known: frozenset[str]) -> None:
    """Refuse keys that an object cannot have.

    Raises:
        ValueError: there are such keys; the message names them.
    """
    if not message.keys() <= known:
        unknown = ", ".join(sorted(message.keys() - known))
        raise ValueError(f"unknown key {unknown}; known are {', '.join(sorted(known))}")


def _message(
    now_ns: int, times: AcceptedTimes, message: dict[str, Any]
) -> tuple[bytes, bytes | None, bytes, int, int | None]:
    known = _KEYS
    if is_printed(message):
        message, known = stream_line(message), _OF_PRINTED
    refuse_unknown(message, known)
    subject = message.get("subject")
    if not isinstance(subject, str) or not subject:
        raise ValueError("subject must be there and be a text")
    ts_ns = time_given(message, "ts_ns", now_ns, times)
    block = _headers(message)
    if "msg_id" in message:
        _refuse_other_id(message["msg_id"], block)
    origin = (
        time_given(message, "origin_ts_ns", now_ns, times) if "origin_ts_ns" in message else None
    )
    return subject.encode(), block, payload_of(message), ts_ns, origin


def _headers(message: dict[str, Any]) -> bytes | None:
    if "headers_b64" not in message:
        return _block(message["headers"]) if "headers" in message else None
    if "headers" in message:
        raise ValueError("headers and headers_b64 exclude each other")
    given = message["headers_b64"]
    return None if given is None else _block(from_base64(given, "headers_b64"))


def _refuse_other_id(msg_id: Any, block: bytes | None) -> None:
    """Refuse an id that somebody has written into a printed line: the headers have it."""
    stored = headers.lookup(block, headers.MSG_ID) if block else None
    if stored is None or stored.decode(errors="backslashreplace") != msg_id:
        raise ValueError(
            f"msg_id is not the {headers.MSG_ID} of its headers; give the id there, or leave it out"
        )


def time_given(message: dict[str, Any], name: str, now_ns: int, times: AcceptedTimes) -> int:
    """The time that an object gives, or the clock's, which is always taken; nanoseconds since the epoch.

    Raises:
        ValueError: it is no whole number, or one that is refused.
    """
    if name not in message:
        return now_ns
    given = message[name]
    if type(given) not in (int, Instant):
        raise ValueError(f"{name} must be an integer, nanoseconds since the epoch")
    if refusal := times.refusal(name, given, as_number=type(given) is int):
        raise ValueError(refusal)
    return int(given)


def payload_of(message: dict[str, Any]) -> bytes:
    """The payload that an object gives as `data` (text) or `data_b64` (any bytes); empty without either.

    Raises:
        ValueError: the object gives both, or one that cannot be read.
    """
    return octets_of(message, "data") or b""


def octets_of(message: dict[str, Any], name: str) -> bytes | None:
    """The bytes that an object gives as a text (a record also as bytes), or under `<name>_b64` in base64; None without.

    Raises:
        ValueError: the object gives both, or one that cannot be read.
    """
    encoded = f"{name}_b64"
    if encoded not in message:
        text = message.get(name, "")
        if isinstance(text, bytes):
            return text
        if not isinstance(text, str):
            raise ValueError(
                f"{name} must be a text (a JSON document, too, is written as one); other bytes go into {encoded}"
            )
        return text.encode() if name in message else None
    if name in message:
        raise ValueError(f"{name} and {encoded} exclude each other")
    return from_base64(message[encoded], encoded)


def from_base64(encoded: Any, name: str) -> bytes:
    """Decode a text in base64.

    Raises:
        ValueError: the value is no text in base64.
    """
    if not isinstance(encoded, str):
        raise ValueError(f"{name} must be a text")  # noqa: TRY004
    try:
        return a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"{name} is not base64 ({error})") from error


def _block(given: Any) -> bytes | None:
    if isinstance(given, bytes):
        if given and not headers.is_valid(given):
            raise ValueError(
                "headers are bytes, and no header block (NATS/1.0, then `name: value`)"
            )
        return given or None
    pairs = _pairs(given) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        raise ValueError("headers must be pairs of texts, or an object of texts and lists of texts")
    return headers.build(pairs) or None


def _pairs(given: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, values in given.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def _is_pair(given: Any) -> bool:
    match given:
        case (str(), str()):
            return True
        case _:
            return False


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {max(names, key=names.count)} stands in one object twice")
    return fields


def _json_problem(error: json.JSONDecodeError) -> str:
    return f"it is not JSON ({error.msg} at column {error.colno})"


def open_lines(lines: Given) -> AbstractContextManager[Iterable[Line]]:
    """Open messages to publish or to append: lines or records as they are given, rows of a frame, a file's lines.

    Raises:
        UsageError: the file cannot be opened; or what is given holds no messages.
    """
    if isinstance(lines, Path):
        return _open_file(lines)
    if isinstance(lines, Mapping):
        return nullcontext([lines])
    if hasattr(lines, "sparkSession"):
        raise UsageError(
            "a Spark DataFrame is appended, not published; nothing was written; call append, or publish its toPandas()"
        )
    if isinstance(lines, ArrowStream):
        return nullcontext(records_of(lines))
    if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
        raise UsageError(
            f"a value of type {type(lines).__name__} is nothing that holds messages; nothing was written; give a frame "
            "of pandas or Polars, an Arrow table, a dict, a list of dicts or of JSON lines, or Path(…) of such a file"
        )
    return nullcontext(lines)


def _open_file(path: Path) -> AbstractContextManager[Iterable[Line]]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); nothing was stored; name a file of JSON lines, or - for "
            "standard input"
        ) from error
