"""The lines that `messages --format jsonl` prints, and their conversion to lines to publish again."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from retention.core import headers, kv

_PRINTED = [
    *("partition", "segment", "seq", "subject", "ts_ns", "headers", "payload"),
    *("size", "msg_id", "origin_ts_ns"),
]
_PAYLOAD = "payload_b64"
"""The key of every printed line, and of no other; handwritten lines have `data` or `data_b64`."""
_OF_PLACE = frozenset(("partition", "segment", "seq", "size"))
"""Keys of a message's position, which publishing assigns anew."""
_DERIVED = frozenset(("operation", "marker", "user_headers"))
"""Keys that repeat information from the headers."""


def message_lines(messages: pa.Table) -> Iterator[str]:
    """Yield one JSON object per message of shape `MESSAGES`, without line ends, in the order given.

    Only a delete marker has `marker`, its reason.
    """
    for batch in messages.select(_PRINTED).to_batches():
        operations = kv.operations(batch["headers"]).to_pylist()
        reasons = headers.marker_reasons(batch["headers"]).to_pylist()
        for row, operation, reason in zip(batch.to_pylist(), operations, reasons, strict=True):
            printed = dict(_printed(name, row[name]) for name in _PRINTED)
            printed["operation"] = operation
            if reason is not None:
                printed["marker"] = reason
            yield json.dumps(printed, ensure_ascii=False)


def is_printed(message: Mapping[str, object]) -> bool:
    """Whether the object of a line comes from a printed line."""
    return _PAYLOAD in message


def stream_line(printed: Mapping[str, object]) -> dict[str, object]:
    """The object to publish to a stream from a printed one: keeps `msg_id` and `origin_ts_ns`, but not its place."""
    return _without(printed, _OF_PLACE | _DERIVED) | {"data_b64": printed[_PAYLOAD]}


def topic_line(printed: Mapping[str, object]) -> dict[str, object]:
    """The object to publish to a topic from a printed one: keeps the partition, the id and the producer's time.

    The server's time and the topic's name are not kept, because a topic has its own.
    """
    line = _without(printed, _DERIVED | {"segment", "seq", "size", "subject", "ts_ns", "msg_id"})
    if printed.get("msg_id") is not None:
        line["id"] = printed["msg_id"]
    return line | {"data_b64": printed[_PAYLOAD]}


def _without(printed: Mapping[str, object], names: frozenset[str]) -> dict[str, object]:
    left = names | {_PAYLOAD}
    return {
        name: value for name, value in printed.items() if name not in left and value is not None
    }


def _printed(name: str, value: Any) -> tuple[str, object]:
    if name == "headers":
        return "headers_b64", None if value is None else _base64(value)
    if name == "payload":
        return _PAYLOAD, _base64(value or b"")
    return name, value


def _base64(octets: bytes) -> str:
    return b2a_base64(octets, newline=False).decode()
