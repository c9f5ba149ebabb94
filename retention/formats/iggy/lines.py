"""JSON lines to publish to a topic, with strict parsing."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
import pyarrow as pa

from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.formats.iggy.user_headers import Typed, build, parse, typed_of
from retention.formats.jsonl import (
    Line,
    Unread,
    from_base64,
    octets_of,
    payload_of,
    refuse_unknown,
    table_of_lines,
    time_given,
)
from retention.formats.printed_lines import is_printed, topic_line
from retention.formats.records import plain

SENT = pa.schema(
    [
        pa.field("partition", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("id_low", pa.uint64(), nullable=False),
        pa.field("id_high", pa.uint64(), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("origin_ts_ns", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
    ]
)
"""One row per message to publish.

At most one of `partition` and `key` is set and determines the partition; if both are null, the round-robin turn does.
The id has 128 bits, 0 for an id from the server. `headers` are user headers in their stored form, null for none. `line`
is the line number.
"""

_KEYS = frozenset(
    [
        *("partition", "key", "key_b64", "id", "origin_ts_ns", "subject"),
        *("data", "data_b64", "headers", "headers_b64"),
    ]
)
_NAMES = {"payload": "data"}
_U32 = range(2**32)
_MOST_ID = 2**128 - 1
_LOW = 2**64 - 1


def parse_sent(
    lines: Iterable[Line],
    topic: str,
    now_ns: int,
    unread: Unread | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> pa.Table:
    """Parse JSON lines into messages to publish, shape `SENT`, in their order (docs/semantics/topics.md).

    Args:
        lines: text, or bytes in UTF-8; or records, with `payload` for `data`, and bytes permitted in place of text.
        topic: the topic's name, the only permitted subject of a line.
        now_ns: the producer's time of messages without one, nanoseconds since the epoch.
        unread: collects invalid lines; without it, the first one is an error.
        times: the permitted producer's times.

    Raises:
        UsageError: a line is not a message; the error names its number.
    """
    read = partial(_sent, topic=topic, now_ns=now_ns, times=times)
    return table_of_lines(lines, read, SENT, partial(plain, names=_NAMES, times=times), unread)


def user_headers_of(given: object) -> bytes:
    """Build the block of user headers that JSON describes: an object, or pairs.

    Keys and values are strings, booleans, numbers, or `{"kind": "uint32", "value": base64}`, as in Iggy's own JSON.

    Raises:
        ValueError: the JSON does not describe user headers.
    """
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        raise ValueError("headers must be pairs, or an object")
    return build((_typed(key), _typed(value)) for key, value in pairs)


def halves(number: int) -> tuple[int, int]:
    """The low and the high 64 bits of an id."""
    return number & _LOW, number >> 64


def with_ids(given: np.ndarray, generated: np.ndarray) -> np.ndarray:
    """Replace ids of 0 with generated ones, shape (messages, 2)."""
    return np.where((given == 0).all(axis=1)[:, None], generated, given)


def _sent(
    message: dict[str, object], topic: str, now_ns: int, times: AcceptedTimes
) -> tuple[object, ...]:
    if is_printed(message):
        message = topic_line(message)
    refuse_unknown(message, _KEYS)
    if message.get("subject", topic) != topic:
        raise ValueError(f"subject can only be the topic's name, {topic!r}; leave it out")
    partition, key = message.get("partition"), octets_of(message, "key")
    if partition is not None and (type(partition) is not int or partition not in _U32):
        raise ValueError("partition must be a whole number of 32 bits")
    if partition is not None and key is not None:
        raise ValueError("partition and key exclude each other")
    if isinstance(given := message.get("origin_ts_ns"), int) and given < 0:
        raise ValueError("origin_ts_ns must not be before 1970")
    origin_ts_ns = time_given(message, "origin_ts_ns", now_ns, times)
    id_ = halves(_id(message.get("id", 0)))
    return partition, key, *id_, _headers(message), payload_of(message), origin_ts_ns


def _id(given: object) -> int:
    number = int(given) if isinstance(given, str) and given.isdecimal() else given
    if type(number) is not int or not 0 <= number <= _MOST_ID:
        raise ValueError(f"id must be a whole number of 128 bits at most, not {given!r}")
    return number


def _headers(message: dict[str, object]) -> bytes | None:
    if isinstance(block := message.get("headers"), bytes):
        parse(block)
        return block or None
    if "headers_b64" not in message:
        return user_headers_of(message["headers"]) or None if "headers" in message else None
    if "headers" in message:
        raise ValueError("headers and headers_b64 exclude each other")
    if message["headers_b64"] is None:
        return None
    block = from_base64(message["headers_b64"], "headers_b64")
    parse(block)
    return block or None


def _is_pair(given: object) -> bool:
    return isinstance(given, list | tuple) and len(given) == 2  # noqa: PLR2004


def _typed(given: object) -> Typed:
    match given:
        case {"kind": str() as kind, "value": value, **others} if not others:
            return Typed(kind, from_base64(value, "the value of a user header"))
        case str() | bool() | int() | float():
            return typed_of(given)
        case _:
            raise ValueError(
                "a user header is a string, true or false, a number, or {kind, value in base64}"
            )
