"""Counters (`Nats-Incr`, ADR-49): the increments that a stream with `allow_msg_counter` accepts, and its totals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.core import headers
from retention.ingest.batch_headers import having
from retention.ingest.validation import Validation

INCREMENT = "Nats-Incr"
SOURCES = "Nats-Counter-Sources"
MAX_DIGITS = 4_000
"""A server limits totals only by message size; Python converts numbers of up to 4,300 digits."""
EXCLUDED = (
    headers.ROLLUP,
    "Nats-Expected-Stream",
    "Nats-Expected-Last-Msg-Id",
    "Nats-Expected-Last-Sequence",
    "Nats-Expected-Last-Subject-Sequence",
    "Nats-Expected-Last-Subject-Sequence-Subject",
)
"""Headers that exclude an increment."""

_NUMBER = re.compile(rb"[+-]?[0-9]+")
_LEADING_NUMBER = re.compile(r"[+-]?[0-9]+")


class UncountableError(Exception):
    """The reason why an increment cannot be added, with the server's error code if there is one."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


def refuse_increments(screen: Validation, given: pa.Table, config: StreamConfig) -> None:
    """Refuse increments that are not numbers, that no counter accepts, or that conflict with other headers."""
    blocks = given["headers"]
    rows, values = headers.first_values(blocks, INCREMENT)
    if not len(rows):
        return
    counting, wrong, long = (np.zeros(given.num_rows, dtype=bool) for _ in range(3))
    for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
        counting[row] = bool(value)
        wrong[row] = bool(value) and not _NUMBER.fullmatch(value)
        long[row] = len(value) > MAX_DIGITS
    screen.refuse(wrong, f"its {INCREMENT} is not a whole number", 10171)
    if not config.allow_msg_counter:
        reason = f"it has a {INCREMENT}, and allow_msg_counter is off"
        screen.refuse(counting, reason, 10168)
    loaded = pc.greater(pc.binary_length(given["payload"]), 0).to_numpy()
    screen.refuse(counting & loaded, f"a {INCREMENT} excludes a payload", 10170)
    for name in EXCLUDED:
        screen.refuse(counting & having(blocks, name), f"a {INCREMENT} excludes a {name}", 10171)
    screen.refuse(long, f"its {INCREMENT} has more than {MAX_DIGITS:,} digits")


def refuse_uncounted(screen: Validation, blocks: pa.ChunkedArray, config: StreamConfig) -> None:
    """Refuse messages without an increment for a counter stream."""
    if config.allow_msg_counter:
        screen.refuse(~having(blocks, INCREMENT), f"a counter takes a {INCREMENT} only", 10169)


class Counter:
    """The counter of one subject: its total, and the totals from other streams.

    Args:
        block: the header block of the subject's last message; None without one.
        payload: its payload; None without a message.

    Raises:
        UncountableError: they contain no total.
    """

    def __init__(self, block: bytes | None, payload: bytes | None) -> None:
        try:
            self.total = 0 if payload is None else _total_of(payload)
            self.sources = _sources_of(headers.lookup(block, SOURCES))
        except (ValueError, RecursionError) as error:
            reason = "the counter is broken: the last message of its subject has no total"
            raise UncountableError(reason, 10172) from error

    def add(self, block: bytes) -> None:
        """Add a message's increment."""
        self.total += _increment_of(block)

    def with_increment(self, block: bytes) -> tuple[bytes, bytes]:
        """The header block and the payload to store for a message once its increment is added.

        Raises:
            UncountableError: the total has too many digits.
        """
        total = self.total + _increment_of(block)
        if abs(total) >= 10**MAX_DIGITS:
            raise UncountableError(f"its counter has more than {MAX_DIGITS:,} digits")
        if self.sources:
            block = headers.with_value(block, SOURCES, _go_json(self.sources))
        return block, b'{"val":"%d"}' % total


def _increment_of(block: bytes) -> int:
    return int((headers.lookup(block, INCREMENT) or b"0").decode())


def _total_of(payload: bytes) -> int:
    """The total in a message, as Go reads it: `val` in any letter case, a string that begins with a number, or 0.

    Raises:
        ValueError: it is not a JSON object, or `val` is not a string.
    """
    # An object becomes a tuple of its pairs, an array a list.
    text = payload.decode(errors="surrogateescape")
    fields = json.loads(text, object_pairs_hook=tuple, parse_constant=_no_constant)
    if fields is None:
        return 0
    values = [value for name, value in _pairs(fields) if name.lower() == "val"]
    if not all(isinstance(value, str | None) for value in values):
        raise ValueError(text)
    total = next((value for value in reversed(values) if value is not None), "")
    number = _LEADING_NUMBER.match(total)
    return int(number[0]) if number else 0


def _sources_of(value: bytes | None) -> dict[str, dict[str, str] | None]:
    """The totals taken from other streams: stream → subject → total.

    Raises:
        ValueError: it is not a JSON object of this form.
    """
    if not value:
        return {}
    sources = json.loads(value.decode(errors="replace"), parse_constant=_no_constant)
    if sources is None:
        return {}
    if not isinstance(sources, dict) or not all(map(_is_totals, sources.values())):
        raise ValueError(value)
    return sources


def _is_totals(totals: object) -> bool:
    return totals is None or (
        isinstance(totals, dict) and all(isinstance(total, str) for total in totals.values())
    )


def _go_json(sources: Mapping[str, object]) -> bytes:
    """The sources as Go writes them: sorted, without spaces, and with HTML characters escaped."""
    text = json.dumps(sources, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def _pairs(fields: object) -> tuple[tuple[str, Any], ...]:
    if not isinstance(fields, tuple):
        raise ValueError("it is not an object")  # noqa: TRY004  (as JSON's own errors)
    return fields


def _no_constant(name: str) -> Any:
    raise ValueError(name)
