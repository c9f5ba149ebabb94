"""JSON lines: messages to publish, read strictly, and messages as `retention messages` prints them."""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from retention.core import headers, kv
from retention.errors import UsageError

PUBLISHED = pa.schema(
    [
        pa.field("subject", pa.string(), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
    ]
)
"""One row per message to publish: the columns of `retention.core.message_rows.complete_rows`, and the line's number."""

_KEYS = frozenset(("subject", "data", "data_b64", "headers", "ts_ns"))
_INT64 = range(-(2**63), 2**63)
_PRINTED = [
    *("partition", "segment", "seq", "subject", "ts_ns", "headers", "payload"),
    *("size", "msg_id", "origin_ts_ns"),
]


def parse_messages(lines: Iterable[bytes | str], now_ns: int) -> pa.Table:
    """Parse JSON lines into messages to publish, shape `PUBLISHED`, in their order.

    A line is an object with `subject`; `data` (text) or `data_b64` (any bytes), neither for an empty
    payload; `headers`, pairs or an object of texts and lists of texts; `ts_ns`, by default `now_ns`.
    Empty lines are passed over.

    Args:
        lines: text, or bytes in UTF-8.
        now_ns: the time of messages without one, nanoseconds since the epoch.

    Raises:
        UsageError: a line is no such object; the message names the line's number.
    """
    return table_of_lines(lines, lambda message: _message(message, now_ns), PUBLISHED)


def table_of_lines(
    lines: Iterable[bytes | str],
    read: Callable[[dict[str, Any]], tuple[Any, ...]],
    schema: pa.Schema,
) -> pa.Table:
    """Read the objects of JSON lines into a table, one a row; empty lines are passed over.

    Args:
        lines: text, or bytes in UTF-8.
        read: makes a row of an object, all its columns but the last; raises a ValueError for a wrong object.
        schema: the schema of the table; the last column is the line's number.

    Raises:
        UsageError: a line is no such object; the message names the line's number.
    """
    rows = []
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    for number, line in enumerate(lines, start=1):
        try:
            text = line if isinstance(line, str) else line.decode()
            if text and not text.isspace():
                rows.append((*read(_checked(decode(text))), number))
        except (ValueError, RecursionError) as error:
            problem = _json_problem(error) if isinstance(error, json.JSONDecodeError) else error
            raise UsageError(
                f"line {number}: {problem}; nothing was published; correct it and publish again"
            ) from error
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(schema)
    return pa.table(columns, schema=schema)


def message_lines(messages: pa.Table) -> Iterator[str]:
    """Yield one JSON object per message of shape `MESSAGES`, without line ends, in the order given."""
    for batch in messages.select(_PRINTED).to_batches():
        operations = kv.operations(batch["headers"]).to_pylist()
        for row, operation in zip(batch.to_pylist(), operations, strict=True):
            printed = dict(_printed(name, row[name]) for name in _PRINTED)
            yield json.dumps(printed | {"operation": operation}, ensure_ascii=False)


def _printed(name: str, value: Any) -> tuple[str, Any]:
    if name == "headers":
        return "headers_b64", None if value is None else _base64(value)
    if name == "payload":
        return "payload_b64", _base64(value or b"")
    return name, value


def _base64(octets: bytes) -> str:
    return b2a_base64(octets, newline=False).decode()


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


def _message(message: dict[str, Any], now_ns: int) -> tuple[bytes, bytes | None, bytes, int]:
    refuse_unknown(message, _KEYS)
    subject = message.get("subject")
    if not isinstance(subject, str) or not subject:
        raise ValueError("subject must be there and be a text")
    ts_ns = message.get("ts_ns", now_ns)
    if type(ts_ns) is not int or ts_ns not in _INT64:
        raise ValueError("ts_ns must be an integer, nanoseconds since the epoch")
    block = _block(message["headers"]) if "headers" in message else None
    return subject.encode(), block, payload_of(message), ts_ns


def payload_of(message: dict[str, Any]) -> bytes:
    """The payload that an object gives as `data` (text) or `data_b64` (any bytes); empty without either.

    Raises:
        ValueError: the object gives both, or one that cannot be read.
    """
    return octets_of(message, "data") or b""


def octets_of(message: dict[str, Any], name: str) -> bytes | None:
    """The bytes that an object gives as a text, or under `<name>_b64` in base64; None if it gives none.

    Raises:
        ValueError: the object gives both, or one that cannot be read.
    """
    encoded = f"{name}_b64"
    if encoded not in message:
        text = message.get(name, "")
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a text; other bytes go into {encoded}")
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


def open_lines(
    lines: Iterable[bytes | str] | Path,
) -> AbstractContextManager[Iterable[bytes | str]]:
    """Open lines: those given, or those of a file.

    Raises:
        UsageError: the file cannot be opened.
    """
    if not isinstance(lines, Path):
        return nullcontext(lines)
    try:
        return lines.open("rb")
    except OSError as error:
        raise UsageError(
            f"{lines}: cannot be read ({error.strerror}); nothing was published; name a file of JSON lines, or - for "
            "standard input"
        ) from error
