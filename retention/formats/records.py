"""Conversion of messages in frames, Arrow tables or dicts to the objects of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from numbers import Integral, Real
from typing import Any, Protocol, TypeGuard, runtime_checkable

import pyarrow as pa

from retention.core.accepted_times import AcceptedTimes
from retention.core.units import MICROSECOND, MILLISECOND, SECOND, parse_any_instant
from retention.errors import RetentionError, UsageError

_INDEX_LEVEL = "__index_level_"
"""The prefix of pandas' column names for an unnamed index; a number follows."""
_ROWS = 10_000
"""The maximum rows to convert to Python values at a time."""
_BYTES = 8 << 20
"""The approximate bytes of the rows to convert to Python values at a time."""
_UNITS = {"s": SECOND, "ms": MILLISECOND, "us": MICROSECOND, "ns": 1}
_EASY = frozenset((str, bytes, int))
"""Types of values that are never missing and need no conversion; most values have one of them."""


class Instant(int):
    """Nanoseconds since the epoch, given as a time instead of a number."""


@runtime_checkable
class ArrowStream(Protocol):
    """A frame or table that exports its rows with Arrow's C stream protocol.

    Frames of pandas (2.2), Polars, DuckDB and pyarrow do; this loads none of these libraries.
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def records_of(frame: ArrowStream) -> Iterator[dict[str, object]]:
    """The rows of a frame, each column under its name, with times as nanoseconds since the epoch.

    An unnamed pandas index is not a column.

    Raises:
        UsageError: the rows cannot be Arrow columns, two columns have the same name, or times have no time zone.
    """
    with _frame_errors(frame):
        for part in _parts(frame):
            reader = pa.RecordBatchReader.from_stream(part)
            names = [name for name in reader.schema.names if not name.startswith(_INDEX_LEVEL)]
            _refuse_columns(reader.schema, names)
            for rows in _in_slices(reader):
                columns = [_values(rows[name]) for name in names]
                for row in zip(*columns, strict=True):
                    yield dict(zip(names, row, strict=True))


def _parts(frame: Any) -> Iterator[object]:
    """A frame in parts to export one by one, because pandas converts everything requested at once to Arrow columns."""
    if not hasattr(frame, "iloc"):
        yield frame
        return
    for start in range(0, max(len(frame), 1), _ROWS):
        yield frame.iloc[start : start + _ROWS]


def _in_slices(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Record batches in slices that are small enough to convert to Python values."""
    for batch in batches:
        row_bytes = batch.nbytes // max(batch.num_rows, 1)
        count = max(min(_ROWS, _BYTES // max(row_bytes, 1)), 1)
        for start in range(0, batch.num_rows, count):
            yield batch.slice(start, count)


def plain(
    record: Mapping[Any, Any], names: Mapping[str, str], times: AcceptedTimes
) -> dict[str, object]:
    """A record with the keys and values of a line's object.

    Missing values (None, NaN, NaT) are omitted; numpy integers become Python's; a `time` becomes nanoseconds since the
    epoch; headers are pairs, an object, or a block of bytes.

    Args:
        record: one message; bytes may remain bytes.
        names: the key in a record → the key in a line. The exact `ts_ns` takes precedence over `time`.
        times: the permitted instants of `time`.

    Raises:
        ValueError: a value is invalid in a message.
    """
    values = _present(record)
    if "headers" in values:
        values["headers"] = _headers(values["headers"])
    if "payload" in values:
        _refuse_payload(values)
    if "time" in names and "time" in values:
        values["time"] = _instant(values["time"], times)
    for name, key in names.items():
        if name in values:
            values.setdefault(key, values.pop(name))
    return values


def _present(record: Mapping[Any, Any]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, value in record.items():
        if not isinstance(name, str):
            raise ValueError("the keys of a message must be strings")  # noqa: TRY004  (the caller adds the number)
        if type(value) in _EASY:
            values[name] = value
        elif not is_missing(value):
            values[name] = _value(value)
    return values


def _refuse_payload(values: dict[str, object]) -> None:
    if not isinstance(values["payload"], str | bytes):
        raise ValueError("payload must be text or bytes")  # noqa: TRY004  (the caller adds the number)
    if values.keys() & {"data", "data_b64"}:
        raise ValueError("payload, data and data_b64 exclude each other")


def _instant(value: Any, times: AcceptedTimes) -> int:
    is_number = isinstance(value, Integral) and not isinstance(value, Instant)
    try:
        ns = parse_any_instant(value)
    except UsageError as error:
        raise ValueError(f"time {error}") from error
    if refusal := times.refusal("time", ns, as_number=is_number):
        raise ValueError(refusal)
    return Instant(ns)


@contextmanager
def _frame_errors(frame: ArrowStream) -> Iterator[None]:
    try:
        yield
    except RetentionError:
        raise
    except Exception as error:  # the frame's library may raise any class
        reason = str(error).strip().split("\n", 1)[0]
        raise UsageError(
            f"the rows of this {type(frame).__name__} cannot be read as columns of Arrow ({reason}); nothing was "
            "written; give each column values of one type: strings, bytes, integers, times with a zone"
        ) from error


def _refuse_columns(schema: pa.Schema, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"two columns have the name {name}; nothing was written; rename one")
        kind = schema.field(name).type
        if pa.types.is_timestamp(kind) and kind.tz is None:
            raise UsageError(
                f"the times in the column {name} have no time zone, so their instants are unknown; "
                f"nothing was written; give them one, with pandas by frame[{name!r}].dt.tz_localize('UTC'), with "
                f"Polars by pl.col({name!r}).dt.replace_time_zone('UTC')"
            )


def _values(column: pa.Array) -> list[object]:
    """The values of a column, with times in exact nanoseconds, even beyond 64 bits."""
    if not pa.types.is_timestamp(column.type):
        values: list[object] = column.to_pylist()
        return values
    unit = _UNITS[column.type.unit]
    counts = column.cast(pa.int64()).to_pylist()
    return [None if count is None else Instant(count * unit) for count in counts]


def is_record(line: object) -> TypeGuard[Mapping[Any, Any]]:
    """Whether a line is a record; a dict, as most are, needs no slow test of a Mapping."""
    return type(line) is dict or isinstance(line, Mapping)


def is_missing(value: object) -> bool:
    """Whether a value is a missing value of Python, numpy or pandas."""
    kind = type(value)
    if kind in _EASY:
        return False
    if value is None or kind.__name__ == "NAType":
        return True
    # NaN and NaT are not equal to themselves.
    return isinstance(value, Real | datetime) and bool(value != value)  # noqa: PLR0124


def _value(value: object) -> object:
    if isinstance(value, Instant):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        return value
    return int(value)


def _headers(given: object) -> object:
    """Headers in the form of a line: structs without their null fields, and pairs as pairs."""
    if isinstance(given, Mapping):
        return {name: value for name, value in given.items() if value is not None}
    if hasattr(given, "tolist"):
        given = given.tolist()
    if isinstance(given, list):
        return [tuple(pair.values()) if isinstance(pair, Mapping) else pair for pair in given]
    return given
