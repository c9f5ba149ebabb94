"""NATS header blocks (ADR-4): building, parsing, and the values that retention rules use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.schemas.deadlines import NEVER

TTL = "Nats-TTL"
MSG_ID = "Nats-Msg-Id"
MARKER_REASON = "Nats-Marker-Reason"
KV_OPERATION = "KV-Operation"
ROLLUP = "Nats-Rollup"
EXPECTED_LAST_SEQ = "Nats-Expected-Last-Sequence"
EXPECTED_SUBJECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_MSG_ID = "Nats-Expected-Last-Msg-Id"
EXPECTED_STREAM = "Nats-Expected-Stream"

NEVER_TTL = -1
"""The result of `parse_ttl` for `never`."""
UNREADABLE_TTL = -2
"""The result of `ttls` for a value that the server refuses."""

MAX_BLOCK_BYTES = 65_535
"""The longest block that the server accepts (400, error code 10097)."""

Headers: TypeAlias = pa.Array | pa.ChunkedArray

FIRST_LINE = b"NATS/1.0\r\n"
"""The beginning of every header block."""
_SECOND_NS = 1_000_000_000
_INT64_SPAN = 2**64
_INT64_DIGITS = 19
_UNITS_NS = {
    b"ns": 1,
    b"us": 1_000,
    "\u00b5s".encode(): 1_000,
    "\u03bcs".encode(): 1_000,
    b"ms": 1_000_000,
    b"s": _SECOND_NS,
    b"m": 60 * _SECOND_NS,
    b"h": 3_600 * _SECOND_NS,
}
_TERM = re.compile(rb"([0-9]*)(?:\.([0-9]*))?([^0-9.]+)")
_DIGITS = re.compile(rb"[0-9]+")
_LINE = re.compile(rb"[^:\r\n]+:[^\r\n]*\Z")


def build(pairs: Iterable[tuple[str, str]]) -> bytes:
    """The header block with `pairs` in their order; empty for no pairs.

    Raises:
        ValueError: a name is empty or contains a colon or a line break, or a value contains a line
    break.
    """
    lines = []
    for name, value in pairs:
        line = f"{name}: {value}".encode("utf-8", "surrogateescape")
        if not name or ":" in name or not _LINE.match(line):
            raise ValueError(f"{name!r}: {value!r} is not valid as a header")
        lines.append(line + b"\r\n")
    return b"".join((FIRST_LINE, *lines, b"\r\n")) if lines else b""


def parse(block: bytes) -> list[tuple[str, str]]:
    """The names and values of a block in their order, without spaces after the colon."""
    lines = block.removeprefix(FIRST_LINE).split(b"\r\n")
    cut = (line.partition(b":") for line in lines if line)
    return [(_text(name), _text(value.lstrip(b" "))) for name, _, value in cut]


def lookup(block: bytes | None, name: str) -> bytes | None:
    """The first value under exactly `name`, as the server finds it; null if there is none."""
    if not block:
        return None
    key = b"\r\n" + name.encode() + b":"
    at = block.find(key)
    if at < 0:
        return None
    end = block.find(b"\r\n", at + len(key))
    return block[at + len(key) : end if end >= 0 else len(block)].lstrip(b" ")


def is_valid(block: bytes) -> bool:
    """Whether the block is complete: version line, `Name: value` lines, blank line, not too long."""
    if not (block.startswith(FIRST_LINE) and block.endswith(b"\r\n\r\n")):
        return False
    lines = block[len(FIRST_LINE) : -4].split(b"\r\n")
    return len(block) <= MAX_BLOCK_BYTES and all(_LINE.match(line) for line in lines)


def parse_ttl(value: bytes | str) -> int:
    """The seconds of a `Nats-TTL` value: `NEVER_TTL` for `never`, 0 for no TTL (ADR-43).

    A Go duration of at least one second is truncated to whole seconds; other values are decimal
    seconds, computed with the wrap-around of a 64-bit integer, as the server does.

    Raises:
        ValueError: the server refuses the value (400, error code 10165).
    """
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if not raw:
        return 0
    if raw.lower() == b"never":
        return NEVER_TTL
    duration = go_duration_ns(raw)
    if duration is not None:
        if duration < _SECOND_NS:
            raise _invalid_ttl(raw)
        seconds, rest = divmod(duration, _SECOND_NS)
        return int(seconds + rest / _SECOND_NS)  # in floating point, as Go's Duration.Seconds
    # 10**64 is a multiple of 2**64: only the last 64 digits can matter.
    ttl = _wrapped(int(raw[-64:])) if _DIGITS.fullmatch(raw) else -1
    if ttl < 0:
        raise _invalid_ttl(raw)
    return ttl


def deadline_ns(ts_ns: int, ttl: int) -> int | None:
    """The instant at which a message stored at `ts_ns` with that TTL (seconds) expires; None without a TTL.

    Wrapped to 64 bits as in the server: after the year 2262 the instant is negative, so it is in
    the past.
    """
    if ttl == NEVER_TTL:
        return NEVER
    return min(_wrapped(ts_ns + ttl * _SECOND_NS), NEVER - 1) if ttl else None


def ttls(headers: Headers) -> np.ndarray:
    """Seconds of each `Nats-TTL`, int64, as by `parse_ttl`: 0 for none, `UNREADABLE_TTL` for a refused value."""
    seconds = np.zeros(len(headers), dtype=np.int64)
    rows, values = first_values(headers, TTL)
    if len(rows):
        distinct = values.dictionary_encode()
        read = [_ttl_or_unreadable(value.as_py()) for value in distinct.dictionary]
        seconds[rows] = np.array(read, dtype=np.int64)[distinct.indices.to_numpy()]
    return seconds


def ttl_deadlines(headers: Headers, ts_ns: pa.Array | pa.ChunkedArray) -> pa.Array:
    """`deadline_ns` of each message: null where `Nats-TTL` is absent, zero or cannot be parsed."""
    seconds = ttls(headers)
    without = (seconds == 0) | (seconds == UNREADABLE_TTL)
    if without.all():
        return pa.nulls(len(headers), pa.int64())
    expiring = np.asarray(ts_ns).astype(np.int64) + seconds * np.int64(_SECOND_NS)
    deadlines = np.where(seconds == NEVER_TTL, NEVER, np.minimum(expiring, NEVER - 1))
    return pa.array(deadlines, mask=without)


def with_ttl(headers: pa.ChunkedArray, seconds: int) -> pa.ChunkedArray:
    """Valid blocks with this `Nats-TTL` as their last line and no other TTL, as the server rewrites them."""
    others = pc.replace_substring_regex(headers, rf"(?s)\r\n(?:{TTL}:.*?\r\n)+", "\r\n")
    return with_line(others, TTL, str(seconds))


def with_line(headers: pa.ChunkedArray, name: str, value: str) -> pa.ChunkedArray:
    """Valid blocks with a line appended."""
    return pc.replace_substring_regex(headers, r"\r\n\z", f"{name}: {value}\r\n\r\n")


def with_value(block: bytes, name: str, value: bytes) -> bytes:
    """A valid block with this value in the first line of that name; the line is appended if it is missing."""
    key = b"\r\n" + name.encode() + b":"
    at = block.find(key)
    if at < 0:
        return block[:-2] + name.encode() + b": " + value + b"\r\n\r\n"
    end = block.find(b"\r\n", at + len(key))
    return block[: at + len(key)] + b" " + value + block[end:]


def is_marker(headers: Headers) -> pa.Array:
    """Whether each message leaves no marker when it expires: a subject-delete marker or a KV purge (ADR-43, ADR-8)."""
    marks = np.zeros(len(headers), dtype=bool)
    rows, reasons = first_values(headers, MARKER_REASON)
    marks[rows] = pc.binary_length(reasons).to_numpy(zero_copy_only=False) > 0
    rows, operations = first_values(headers, KV_OPERATION)
    marks[rows] |= pc.equal(operations, b"PURGE").to_numpy(zero_copy_only=False)
    return pa.array(marks)


def marker_reasons(headers: Headers) -> pa.Array:
    """The reason of each message that is a subject-delete marker (ADR-43), such as `MaxAge`; null for any other."""
    reasons: list[str | None] = [None] * len(headers)
    rows, given = first_values(headers, MARKER_REASON)
    for row, reason in zip(rows.tolist(), _as_strings(given).to_pylist(), strict=True):
        reasons[row] = reason or None
    return pa.array(reasons, pa.string())


def msg_ids(headers: Headers) -> pa.Array:
    """The `Nats-Msg-Id` of each message; null where it is absent or empty."""
    rows, values = first_values(headers, MSG_ID)
    if not len(rows):
        return pa.nulls(len(headers), pa.string())
    given = pc.greater(pc.binary_length(values), 0)
    rows, values = rows[given.to_numpy(zero_copy_only=False)], values.filter(given)
    places = np.zeros(len(headers), dtype=np.int64)
    places[rows] = np.arange(len(rows))
    absent = np.ones(len(headers), dtype=bool)
    absent[rows] = False
    return _as_strings(values).take(pa.array(places, mask=absent))


def first_values(headers: Headers, name: str) -> tuple[np.ndarray, pa.Array]:
    """Row numbers of the blocks with the header `name`, and its first value in each."""
    combined = headers.combine_chunks() if isinstance(headers, pa.ChunkedArray) else headers
    if combined.null_count == len(combined):
        return np.zeros(0, np.int64), combined.slice(0, 0)
    candidates = pc.indices_nonzero(pc.match_substring(combined, f"{name}:"))
    pattern = rf"(?s)\r\n{name}: *(?P<value>.*?)(?:\r\n|\z)"
    values = pc.struct_field(pc.extract_regex(combined.take(candidates), pattern), "value")
    rows: np.ndarray = candidates.filter(values.is_valid()).to_numpy().astype(np.int64)
    return rows, values.drop_null()


def _as_strings(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        readable = [value.as_py().decode(errors="backslashreplace") for value in values]
        return pa.array(readable, pa.string())


def _ttl_or_unreadable(value: bytes) -> int:
    try:
        return parse_ttl(value)
    except ValueError:
        return UNREADABLE_TTL


def go_duration_ns(raw: bytes) -> int | None:
    """Nanoseconds of a Go duration, bounded and rounded as by `time.ParseDuration`; None if it is not a duration."""
    text = raw[1:] if raw[:1] in (b"-", b"+") else raw
    if text == b"0":
        return 0
    total, at = 0, 0
    while at < len(text):
        term = _TERM.match(text, at)
        amount = _term_ns(*term.groups(b"")) if term else None
        if term is None or amount is None:
            return None
        total, at = total + amount, term.end()
        if total > 2**63:
            return None
    if raw[:1] == b"-":
        return -total
    return total if at and total < 2**63 else None


def _term_ns(whole: bytes, fraction: bytes, unit: bytes) -> int | None:
    scale = _UNITS_NS.get(unit)
    digits = whole.lstrip(b"0")
    if scale is None or not (whole or fraction) or len(digits) > _INT64_DIGITS:
        return None
    amount = int(digits or b"0") * scale
    if amount > 2**63:
        return None
    return amount + _fraction_ns(fraction, scale)


def _fraction_ns(digits: bytes, scale: int) -> int:
    number, divisor = 0, 1.0
    for digit in digits.decode():
        if number > (2**63 - 1) // 10 or number * 10 + int(digit) > 2**63:
            break
        number, divisor = number * 10 + int(digit), divisor * 10
    return int(float(number) * (float(scale) / divisor))


def _wrapped(number: int) -> int:
    return (number + _INT64_SPAN // 2) % _INT64_SPAN - _INT64_SPAN // 2


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _invalid_ttl(raw: bytes) -> ValueError:
    return ValueError(
        f"{_text(raw)!r} is not a TTL: write whole seconds, a duration of at least 1s, or never"
    )
