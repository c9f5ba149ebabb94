"""The schema of a Delta table: its columns, their names in data files and statistics, and their Arrow types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

Path = tuple[str, ...]
"""The names from a column down to a field of it."""
_PRIMITIVES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FIELD_ID = b"PARQUET:field_id"


class Leaf(NamedTuple):
    """A column, or a field in structs, that is no struct itself."""

    path: Path
    """Logical names, as queries write them."""
    physical: Path
    """Physical names, as statistics, partition values and data files have them."""
    type: Any
    """Delta's type: text, or a dict for a list or map."""
    ids: tuple[str, ...] = ()
    """Field ids in data files, one a level, in a table that maps columns by id; empty in all others."""


def columns(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The top-level fields of a table, from its `metaData` action."""
    return json.loads(metadata["schemaString"])["fields"]


def physical_name(field: Mapping[str, Any]) -> str:
    """The name of a field in data files: its own, unless the table maps columns."""
    return (field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"])


def leaves(metadata: Mapping[str, Any]) -> list[Leaf]:
    """Every leaf of a table, in the order of its schema."""
    return list(_leaves(columns(metadata), Leaf((), (), None), is_by_id=_is_by_id(metadata)))


def _leaves(fields: Iterable[Mapping[str, Any]], above: Leaf, *, is_by_id: bool) -> Iterator[Leaf]:
    for field in fields:
        leaf = Leaf(
            (*above.path, field["name"]),
            (*above.physical, physical_name(field)),
            field["type"],
            (*above.ids, _field_id(field)) if is_by_id else (),
        )
        if _is_struct(field["type"]):
            yield from _leaves(field["type"]["fields"], leaf, is_by_id=is_by_id)
        else:
            yield leaf


def path_in_file(schema: pa.Schema, physical: Path, ids: Sequence[str]) -> Path | None:
    """The path of a leaf in a data file: by field ids if it has some, else by its physical names; None if absent.

    Args:
        schema: the file's Arrow schema.
        physical: the leaf's physical names.
        ids: its field ids; empty in a table that does not map columns by id.
    """
    given, path = list(schema), []
    for level, name in enumerate(physical):
        column = next(
            (c for c in given if (_id_of(c) == ids[level] if ids else c.name == name)), None
        )
        if column is None:
            return None
        path.append(column.name)
        given = list(column.type) if pa.types.is_struct(column.type) else []
    return tuple(path)


def arrow_type(delta_type: Any) -> pa.DataType | None:
    """Arrow's type for values of a leaf; None for lists, maps, variants, and types of later protocols."""
    if not isinstance(delta_type, str):
        return None
    if decimal := _DECIMAL.fullmatch(delta_type):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _PRIMITIVES.get(delta_type)


class FileColumns:
    """The columns of one data file, matched with the table's: by field id if the table maps by id, else by name."""

    def __init__(self, metadata: Mapping[str, Any], schema: pa.Schema) -> None:
        """Match a file's Arrow schema with the table's `metaData`."""
        self._by_id = _is_by_id(metadata)
        self._fields = columns(metadata)
        self._leaves = leaves(metadata)
        self._schema = pa.schema([_without_views(column) for column in schema], schema.metadata)

    def names(self) -> dict[Path, Path]:
        """Physical path of each leaf that the file has → its path in the file."""
        paths = (
            (leaf.physical, path_in_file(self._schema, leaf.physical, leaf.ids))
            for leaf in self._leaves
        )
        return {physical: path for physical, path in paths if path is not None}

    def zoned(self) -> pa.Schema:
        """The file's schema with a zone on instants and none on local times, which INT96 values do not have.

        Text is in plain form: deltalake writes views, which few of Arrow's functions take.
        """
        return pa.schema(
            [self._zoned_field(column, self._fields) for column in self._schema],
            self._schema.metadata,
        )

    def _zoned_field(self, column: pa.Field, fields: list[Any]) -> pa.Field:
        field = self._field_of(column, fields)
        return column if field is None else self._retyped(column, field["type"])

    def _retyped(self, column: pa.Field, delta_type: Any) -> pa.Field:
        return column.with_type(self._zoned(column.type, delta_type))

    def _zoned(self, given: pa.DataType, delta_type: Any) -> pa.DataType:
        kind = delta_type["type"] if isinstance(delta_type, dict) else delta_type
        if pa.types.is_timestamp(given) and kind in ("timestamp", "timestamp_ntz"):
            return pa.timestamp(given.unit, "UTC" if kind == "timestamp" else None)
        if kind == "struct" and pa.types.is_struct(given):
            inner = [self._zoned_field(column, delta_type["fields"]) for column in given]
            return pa.struct(inner)
        if kind == "array" and (pa.types.is_list(given) or pa.types.is_large_list(given)):
            element = self._retyped(given.value_field, delta_type["elementType"])
            return pa.list_(element) if pa.types.is_list(given) else pa.large_list(element)
        if kind == "map" and pa.types.is_map(given):
            return pa.map_(
                self._retyped(given.key_field, delta_type["keyType"]),
                self._retyped(given.item_field, delta_type["valueType"]),
            )
        return given

    def _field_of(self, column: pa.Field, fields: list[Any]) -> Any:
        """The table's field that a file's column has the values of; None if it has none."""
        wanted = _id_of(column) if self._by_id else column.name
        for field in fields:
            if wanted == (_field_id(field) if self._by_id else physical_name(field)):
                return field
        return None


def _without_views(column: pa.Field) -> pa.Field:
    """A column of a file with plain text and bytes instead of views."""
    kind = column.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        kind = pa.string() if pa.types.is_string_view(kind) else pa.binary()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_without_views(inner) for inner in kind])
    elif pa.types.is_list(kind):
        kind = pa.list_(_without_views(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_without_views(kind.key_field), _without_views(kind.item_field))
    return column.with_type(kind)


def _is_by_id(metadata: Mapping[str, Any]) -> bool:
    mode = (metadata.get("configuration") or {}).get("delta.columnMapping.mode", "")
    return bool(mode == "id")


def _field_id(field: Mapping[str, Any]) -> str:
    return str((field.get("metadata") or {}).get("delta.columnMapping.id"))


def _id_of(column: pa.Field) -> str:
    """The field id of a file's column; empty if it has none."""
    return (column.metadata or {}).get(_FIELD_ID, b"").decode()


def _is_struct(delta_type: Any) -> bool:
    return isinstance(delta_type, dict) and delta_type["type"] == "struct"
