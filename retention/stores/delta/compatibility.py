"""Compatibility of Delta tables: unsupported features, properties and columns, each refused by name."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from retention.delta.protocol_versions import FEATURE_READER, FEATURE_WRITER, implied_features
from retention.delta.vectors import VECTORS_ENABLED
from retention.errors import ForeignRowsError, RefusedError
from retention.schemas.messages import MESSAGES, PARTITION_COLUMNS

ALLOWED_FEATURES = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "generatedColumns",
        "changeDataFeed",
        "v2Checkpoint",
        "timestampNtz",
        "deletionVectors",
    }
)
_VARIANT = "variantType"
"""deltalake adds this feature when it sets any property on a table with reader version 3; Spark cannot drop it."""


@dataclass(frozen=True)
class TableRules:
    """The rules that a table's own properties set for changes."""

    append_only: bool
    rewrites_only: bool
    change_data_feed: bool
    may_have_vectors: bool
    gives_vectors: bool
    """Whether removals may be vectors."""


def examine(stream: str, table: DeltaTable) -> TableRules:
    """Check a table's protocol, properties and columns.

    Raises:
        RefusedError: the engine cannot safely handle a feature, property or extra column.
        ForeignRowsError: a column of a message table is missing or has another type.
    """
    features = _features(table)
    unknown = sorted(features - ALLOWED_FEATURES - _unused(table))
    if unknown:
        raise RefusedError(
            f"stream {stream}: the Delta table uses {', '.join(unknown)}, which the engine does not know "
            "to handle safely; nothing was changed; drop that table feature, or copy the rows into a new "
            "stream"
        )
    properties = {name: value or "" for name, value in table.metadata().configuration.items()}
    if "delta.setTransactionRetentionDuration" in properties:
        raise RefusedError(
            f"stream {stream}: delta.setTransactionRetentionDuration is set, so the table would forget its "
            "sequences; nothing was changed; unset that table property"
        )
    _check_columns(stream, table)
    fields = table.schema().fields
    computed = {"delta.generationExpression", "delta.invariants"}
    return TableRules(
        append_only=_is_true(properties, "delta.appendOnly"),
        rewrites_only=any(name.startswith("delta.constraints.") for name in properties)
        or any(computed & set(field.metadata or {}) for field in fields),
        change_data_feed=_is_true(properties, "delta.enableChangeDataFeed"),
        may_have_vectors="deletionVectors" in features,
        gives_vectors="deletionVectors" in features and _is_true(properties, VECTORS_ENABLED),
    )


def lists_features(table: DeltaTable) -> bool:
    """Whether the protocol names features; setting a property with deltalake then adds some."""
    return bool(table.protocol().min_writer_version >= FEATURE_WRITER)


def _unused(table: DeltaTable) -> set[str]:
    """Listed features that no column of the table uses."""
    types = (str(field.type) for field in table.schema().fields)
    return set() if any("Variant" in name for name in types) else {_VARIANT}


def _features(table: DeltaTable) -> set[str]:
    protocol = table.protocol()
    named = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if protocol.min_reader_version > FEATURE_READER:
        named.add(f"reader version {protocol.min_reader_version}")
    if protocol.min_writer_version > FEATURE_WRITER:
        named.add(f"writer version {protocol.min_writer_version}")
    return named | implied_features(protocol.min_writer_version)


def _is_true(properties: dict[str, str], name: str) -> bool:
    return properties.get(name, "").lower() == "true"


def _check_columns(stream: str, table: DeltaTable) -> None:
    given = pa.schema(table.schema())
    for wanted in MESSAGES:
        at = given.get_field_index(wanted.name)
        if at < 0 or given.field(at).type != wanted.type:
            state = "is missing" if at < 0 else f"is {given.field(at).type}, not {wanted.type}"
            raise ForeignRowsError(
                f"stream {stream}: the column {wanted.name} of the Delta table {state}; nothing was changed; "
                "give the table the columns of a message table"
            )
    extra = [name for name in given.names if name not in MESSAGES.names]
    if extra:
        raise RefusedError(
            f"stream {stream}: the Delta table has columns that no message has ({', '.join(extra)}); a rewrite would "
            "lose them, nothing was changed; overwrite the table without them, and its schema, too (DROP COLUMN needs "
            "column mapping, which is refused as well)"
        )
    partitioned = tuple(table.metadata().partition_columns)
    if partitioned != PARTITION_COLUMNS:
        raise RefusedError(
            f"stream {stream}: the Delta table is partitioned by {', '.join(partitioned) or 'nothing'}, not "
            f"by {', '.join(PARTITION_COLUMNS)}; nothing was changed; copy the rows into a new stream"
        )
