"""JSON objects that the program prints and stores, and values of any table's columns in them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object: its values are strings, numbers, booleans, None, lists and further objects."""


def json_value(value: Any) -> Any:
    r"""The value of a column as JSON: instants as RFC 3339, bytes as text, or in hexadecimal digits if they are none.

    >>> json_value(datetime(2026, 5, 1)), json_value(b"u7"), json_value(b"\xff")
    ('2026-05-01T00:00:00', 'u7', '0xff')
    """
    if isinstance(value, datetime):
        text = value.isoformat()
        return f"{text[:-6]}Z" if text.endswith("+00:00") else text
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    return str(value) if isinstance(value, Decimal) else value
