"""JSON lines and Python records: messages to publish, with strict parsing."""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from retention.formats.held_rows import table_of_rows
from retention.formats.printed_lines import is_printed, stream_line
from retention.formats.records import ArrowStream, Instant, is_record, plain, records_of

Line: TypeAlias = bytes | str | Mapping[str, Any]
"""JSON text, or the object itself: a record, which may have `payload` for `data`, and bytes in place of text."""
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
"""One row per message to publish: the columns of `retention.core.message_rows.complete_rows`, and the line number."""


@dataclass(frozen=True)
class SkippedLine:
    """A line that is not published while other lines of its batch are."""

    line: int
    """The line's number from 1; for a frame or a list, the row's number."""
    reason: str
    code: int | None = None
    """The server's error code, if it returns one."""


LeaveOut: TypeAlias = Callable[[list[SkippedLine]], None]
"""A callback for all lines omitted from a batch, called before the batch is committed; it may be called again."""


class Unread:
    """The omitted lines that could not be read as messages."""

    def __init__(self) -> None:
        self.lines: list[SkippedLine] = []


_KEYS = frozenset(("subject", "data", "data_b64", "headers", "headers_b64", "ts_ns"))
_NAMES = {"payload": "data", "time": "ts_ns"}
_OF_RECORDS = "; in a frame or a dict also payload for data, and time for ts_ns"
_OF_PRINTED = _KEYS | {"msg_id", "origin_ts_ns"}


def parse_messages(
    lines: Iterable[Line],
    now_ns: int,
    unread: Unread | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> pa.Table:
    """Parse JSON lines, or records, into messages to publish, shape `PUBLISHED`, in their order.

    A line is an object with `subject`; `data` (text) or `data_b64` (any bytes), neither for an empty payload; `headers`
    (pairs, or an object of strings and lists of strings) or `headers_b64` (the stored block); and `ts_ns`, by default
    `now_ns`. Empty lines are skipped. A line printed by `messages --format jsonl` is also valid; its place
    (`partition`, `segment`, `seq`) and its derived keys are ignored. A record may also have `payload` (text or bytes),
    `time` (an instant), headers as a block of bytes, and None, NaN or NaT for missing values.

    Args:
        lines: text, or bytes in UTF-8; or records.
        now_ns: the time of messages without one, nanoseconds since the epoch.
        unread: collects invalid lines; without it, the first one is an error.
        times: the permitted instants.

    Raises:
        UsageError: a line is not such an object; the error names its number.
    """
    read = partial(_message, now_ns, times)
    return table_of_lines(lines, read, PUBLISHED, partial(plain, names=_NAMES, times=times), unread)


def table_of_lines(
    lines: Iterable[Line],
    read: Callable[[dict[str, object]], tuple[object, ...]],
    schema: pa.Schema,
    as_object: Callable[[Mapping[Any, Any]], dict[str, object]],
    unread: Unread | None = None,
) -> pa.Table:
    """Read the objects of JSON lines, or records, into a table, one per row; empty lines are skipped.

    Args:
        lines: text, or bytes in UTF-8; or records.
        read: converts an object to a row without its last column; raises a ValueError for an invalid object.
        schema: the schema of the table; the last column is the line number.
        as_object: converts a record to the object of a line; raises a ValueError for an invalid record.
        unread: collects invalid lines; without it, the first one is an error.

    Raises:
        UsageError: a line is not such an object; the error names its number.
    """
    return table_of_rows(_rows(lines, read, as_object, unread), schema)


def _rows(
    lines: Iterable[Line],
    read: Callable[[dict[str, object]], tuple[object, ...]],
    as_object: Callable[[Mapping[Any, Any]], dict[str, object]],
    unread: Unread | None,
) -> Iterator[tuple[object, ...]]:
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    for number, line in enumerate(lines, start=1):
        row = None
        try:
            if is_record(line):
                row = read(as_object(line))
            elif text := text_of_line(line):
                row = read(_checked(decode(text)))
        except (ValueError, RecursionError) as error:
            problem = _json_problem(error) if isinstance(error, json.JSONDecodeError) else error
            if unread is not None:
                unread.lines.append(SkippedLine(number, str(problem)))
                continue
            raise UsageError(
                f"line {number}: {problem}; nothing was stored; correct it and try again"
            ) from error
        if row is not None:
            yield (*row, number)


def text_of_line(line: object) -> str:
    """The text of a line without a byte order mark; empty if it has only whitespace.

    Raises:
        ValueError: it is not text, or not in UTF-8.
    """
    if not isinstance(line, str | bytes | bytearray):
        kind = type(line).__name__
        raise ValueError(f"it is a {kind}, neither JSON text nor a dict")  # noqa: TRY004
    text = without_mark(line) if isinstance(line, str) else utf8(bytes(line))
    return "" if text.isspace() else text


def _checked(message: object) -> dict[str, object]:
    if not isinstance(message, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  (the caller adds the line's number)
    return message


def refuse_unknown(message: dict[str, object], known: frozenset[str], of_records: str = "") -> None:
    """Refuse unknown keys of an object; `of_records` names the keys that only records may have.

    Raises:
        ValueError: names the unknown keys.
    """
    if not message.keys() <= known:
        unknown = ", ".join(sorted(message.keys() - known))
        raise ValueError(f"unknown key {unknown}; known are {', '.join(sorted(known))}{of_records}")


def _message(
    now_ns: int, times: AcceptedTimes, message: dict[str, object]
) -> tuple[bytes, bytes | None, bytes, int, int | None]:
    known = _KEYS
    if is_printed(message):
        message, known = stream_line(message), _OF_PRINTED
    refuse_unknown(message, known, _OF_RECORDS)
    subject = message.get("subject")
    if not isinstance(subject, str) or not subject:
        raise ValueError("subject is required and must be text")
    ts_ns = time_given(message, "ts_ns", now_ns, times)
    block = _headers(message)
    if "msg_id" in message:
        _refuse_other_id(message["msg_id"], block)
    origin = (
        time_given(message, "origin_ts_ns", now_ns, times) if "origin_ts_ns" in message else None
    )
    return subject.encode(), block, payload_of(message), ts_ns, origin


def _headers(message: dict[str, object]) -> bytes | None:
    if "headers_b64" not in message:
        return _block(message["headers"]) if "headers" in message else None
    if "headers" in message:
        raise ValueError("headers and headers_b64 exclude each other")
    given = message["headers_b64"]
    return None if given is None else _block(from_base64(given, "headers_b64"))


def _refuse_other_id(msg_id: object, block: bytes | None) -> None:
    """Refuse an id in a printed line that differs from the id in its headers."""
    stored = headers.lookup(block, headers.MSG_ID) if block else None
    if stored is None or stored.decode(errors="backslashreplace") != msg_id:
        raise ValueError(
            f"msg_id is not the {headers.MSG_ID} of its headers; give the id there, or leave it out"
        )


def time_given(message: dict[str, object], name: str, now_ns: int, times: AcceptedTimes) -> int:
    """The time in an object, or the clock's, which is always accepted; nanoseconds since the epoch.

    Raises:
        ValueError: it is not an integer, or it is refused.
    """
    if name not in message:
        return now_ns
    given = message[name]
    if not isinstance(given, int) or isinstance(given, bool):
        raise ValueError(f"{name} must be an integer, nanoseconds since the epoch")  # noqa: TRY004
    if refusal := times.refusal(name, given, as_number=not isinstance(given, Instant)):
        raise ValueError(refusal)
    return int(given)


def payload_of(message: dict[str, object]) -> bytes:
    """The payload of an object, from `data` (text) or `data_b64` (any bytes); empty without either.

    Raises:
        ValueError: the object has both, or an invalid one.
    """
    return octets_of(message, "data") or b""


def octets_of(message: dict[str, object], name: str) -> bytes | None:
    """The bytes in an object, as text (in a record also as bytes) or in base64 under `<name>_b64`; None without.

    Raises:
        ValueError: the object has both, or an invalid one.
    """
    encoded = f"{name}_b64"
    if encoded not in message:
        text = message.get(name, "")
        if isinstance(text, bytes):
            return text
        if not isinstance(text, str):
            raise ValueError(
                f"{name} must be text (a JSON document is written as text, too); other bytes belong in {encoded}"
            )
        return text.encode() if name in message else None
    if name in message:
        raise ValueError(f"{name} and {encoded} exclude each other")
    return from_base64(message[encoded], encoded)


def from_base64(encoded: object, name: str) -> bytes:
    """Decode a base64 string.

    Raises:
        ValueError: the value is not a base64 string.
    """
    if not isinstance(encoded, str):
        raise ValueError(f"{name} must be text")  # noqa: TRY004
    try:
        return a2b_base64(encoded, strict_mode=True)
    except ValueError as error:
        raise ValueError(f"{name} is not base64 ({error})") from error


def _block(given: object) -> bytes | None:
    if isinstance(given, bytes):
        if given and not headers.is_valid(given):
            raise ValueError(
                "headers are bytes, but not a header block (NATS/1.0, then `name: value`)"
            )
        return given or None
    pairs = _pairs(given) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        raise ValueError(
            "headers must be pairs of strings, or an object of strings and lists of strings"
        )
    return headers.build(pairs) or None


def _pairs(given: dict[str, object]) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, values in given.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def _is_pair(given: object) -> bool:
    match given:
        case (str(), str()):
            return True
        case _:
            return False


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {max(names, key=names.count)} occurs twice in one object")
    return fields


def _json_problem(error: json.JSONDecodeError) -> str:
    return f"it is not JSON ({error.msg} at column {error.colno})"


def open_lines(lines: Given) -> AbstractContextManager[Iterable[Line]]:
    """Open messages to publish or to append: given lines or records, rows of a frame, or a file's lines.

    Raises:
        UsageError: the file cannot be opened, or the value has no messages.
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
            f"a value of type {type(lines).__name__} has no messages; nothing was written; give a frame "
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
