"""Compatibility of Delta tables: unsupported features, properties and columns, each refused by name."""

from __future__ import annotations

from dataclasses import dataclass

from retention.delta.protocol_versions import FEATURE_READER, FEATURE_WRITER
from retention.delta.schema import arrow_type
from retention.delta.snapshot import DeltaSnapshot
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


def examine(stream: str, table: DeltaSnapshot) -> TableRules:
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
    if "delta.setTransactionRetentionDuration" in table.properties:
        raise RefusedError(
            f"stream {stream}: delta.setTransactionRetentionDuration is set, so the table would forget its "
            "sequences; nothing was changed; unset that table property"
        )
    _check_columns(stream, table)
    computed = {"delta.generationExpression", "delta.invariants"}
    return TableRules(
        append_only=table.is_set("delta.appendOnly"),
        rewrites_only=any(name.startswith("delta.constraints.") for name in table.properties)
        or any(computed & set(field.get("metadata") or {}) for field in table.schema["fields"]),
        change_data_feed=table.is_set("delta.enableChangeDataFeed"),
        may_have_vectors="deletionVectors" in features,
        gives_vectors="deletionVectors" in features and table.is_set(VECTORS_ENABLED),
    )


def lists_features(table: DeltaSnapshot) -> bool:
    """Whether the protocol names features; setting a property with deltalake then adds some."""
    return bool(table.protocol["minWriterVersion"] >= FEATURE_WRITER)


def _unused(table: DeltaSnapshot) -> set[str]:
    """Listed features that no column of the table uses."""
    types = (str(field["type"]) for field in table.schema["fields"])
    return set() if any("variant" in name for name in types) else {_VARIANT}


def _features(table: DeltaSnapshot) -> set[str]:
    named = set(table.features)
    for kind, newest in (("reader", FEATURE_READER), ("writer", FEATURE_WRITER)):
        version = table.protocol.get(f"min{kind.title()}Version", 1)
        if version > newest:
            named.add(f"{kind} version {version}")
    return named


def _check_columns(stream: str, table: DeltaSnapshot) -> None:
    given = {field["name"]: field["type"] for field in table.schema["fields"]}
    for wanted in MESSAGES:
        kind = given.get(wanted.name)
        if kind is None or arrow_type(kind) != wanted.type:
            state = (
                "is missing"
                if kind is None
                else f"is {arrow_type(kind) or kind}, not {wanted.type}"
            )
            raise ForeignRowsError(
                f"stream {stream}: the column {wanted.name} of the Delta table {state}; nothing was changed; "
                "give the table the columns of a message table"
            )
    ours = frozenset(MESSAGES.names)
    extra = [name for name in given if name not in ours]
    if extra:
        raise RefusedError(
            f"stream {stream}: the Delta table has columns that no message has ({', '.join(extra)}); a rewrite would "
            "lose them, nothing was changed; overwrite the table without them, and its schema, too (DROP COLUMN needs "
            "column mapping, which is refused as well)"
        )
    partitioned = tuple(table.metadata.get("partitionColumns") or ())
    if partitioned != PARTITION_COLUMNS:
        raise RefusedError(
            f"stream {stream}: the Delta table is partitioned by {', '.join(partitioned) or 'nothing'}, not "
            f"by {', '.join(PARTITION_COLUMNS)}; nothing was changed; copy the rows into a new stream"
        )
