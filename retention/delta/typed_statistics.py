"""Typed statistics of checkpoints without JSON, as the JSON that an action carries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow as pa

from retention.delta import stats_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_json(statistics: pa.StructScalar) -> str | None:
    """The `stats` of an `add` with typed statistics; None if it has none.

    Times are truncated to milliseconds, as by every writer, and instants beyond the calendar are left out.
    """
    fields = _plain(statistics)
    return None if fields is None else stats_json.encode(fields)


def _plain(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        plain = {name: _plain(value[name]) for name in value}
        return {name: inner for name, inner in plain.items() if inner is not None}
    if isinstance(value, pa.TimestampScalar):
        return _instant(value.cast(pa.timestamp("us", value.type.tz)).value, value.type.tz)
    known = value.as_py()
    if isinstance(known, float) and not isfinite(known):
        return None
    return known if isinstance(known, (bool, int, float, str, Decimal)) else str(known)


def _instant(micros: int, zone: str | None) -> str | None:
    try:
        instant = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None
    return instant.replace(tzinfo=None).isoformat(timespec="milliseconds") + ("Z" if zone else "")
