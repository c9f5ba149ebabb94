"""Plain strings and bytes in place of the views that other writers may write: Arrow does not filter views."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def without_views(rows: Rows) -> Rows:
    """The rows with plain strings and bytes."""
    fields = [field.with_type(_plain(field.type)) for field in rows.schema]
    if all(new.type == old.type for new, old in zip(fields, rows.schema, strict=True)):
        return rows
    return rows.cast(pa.schema(fields))


def _plain(type_: pa.DataType) -> pa.DataType:
    """A type with plain strings and bytes, also within structs, lists and maps."""
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_plain(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_plain(type_.key_type), _plain(type_.item_type))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_plain(type_.value_type)))
    return _PLAIN.get(type_, type_)
