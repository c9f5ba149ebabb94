"""Plain strings and bytes in place of the views that other writers may write: Arrow does not filter views."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def without_views(rows: Rows) -> Rows:
    """The rows with plain strings and bytes."""
    if not any(field.type in _PLAIN for field in rows.schema):
        return rows
    fields = [field.with_type(_PLAIN.get(field.type, field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))
