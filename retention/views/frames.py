"""Values as frames of pandas and Spark: records of runs, entries of a bucket, numbers of a stream, files of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from retention.buckets.entry import Entry
from retention.core.display import DisplayedList
from retention.history.run_fields import run_fields

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS = ("_ns", "_us", "_seq", "bytes", "messages")
"""Endings of names of 64-bit integers, which a column without any value has, too."""
HISTORY = pa.schema(
    [
        ("run", pa.string()),
        ("kind", pa.string()),
        ("status", pa.string()),
        ("stream", pa.string()),
        ("as_of_ns", pa.int64()),
        ("version_before", pa.int64()),
        ("version_after", pa.int64()),
        ("removed_messages", pa.int64()),
        ("removed_bytes", pa.int64()),
    ]
)
"""The columns that a history has even without a run; others come with the records that have them."""


class RunRecords(DisplayedList[dict[str, Any]]):
    """Outcomes of runs, newest first: a list of records that displays itself and converts to a frame."""

    def display_rows(self) -> list[Mapping[str, Any]]:
        """The fields of each run that people look at."""
        return [run_fields(record) for record in self]

    def to_pandas(self) -> pd.DataFrame:
        """The records, one per row, with a column for each number in them (`by_rule.max_age`)."""
        return frame_of(self)

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The records as a Spark DataFrame with the columns of `to_pandas`, and of `HISTORY`; lists are JSON texts."""
        from retention.engines.spark.frames import spark_frame

        return spark_frame(spark, table_of(self, HISTORY))


class Entries(DisplayedList[Entry]):
    """Entries of a bucket: a list that displays itself and converts to a frame."""

    def to_pandas(self) -> pd.DataFrame:
        """The entries, one per row: bucket, key, value (bytes), revision, created_ns, operation, delta."""
        return frame_of(map(vars, self))


def frame_of(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Records as a frame, one per row: integers are exact even if some are missing.

    A mapping in a record becomes columns of its own, `name.key`; lists are values.
    """
    import pandas as pd

    rows = [_flat(record) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def table_of(records: Iterable[Mapping[str, Any]], always: Iterable[pa.Field] = ()) -> pa.Table:
    """Records as an Arrow table, one per row, with the columns of `frame_of`; a list is a JSON text.

    Args:
        records: the records.
        always: the columns that the table has in any case, first.
    """
    rows = [_flat(record) for record in records]
    fixed = {field.name: field.type for field in always}
    names = dict.fromkeys([*fixed, *(name for row in rows for name in row)])
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        kind = fixed.get(name) or _kind(name, values)
        columns[name] = pa.array(
            [_text(value) for value in values] if kind == pa.string() else values, kind
        )
    return pa.table(columns)


def _kind(name: str, values: Sequence[Any]) -> pa.DataType:
    """The type of a column: a text for anything that is not a boolean, a 64-bit integer or a float in each row."""
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.int64() if name.endswith(_NUMBERS) else pa.string()
    if kinds == {bool}:
        return pa.bool_()
    if _are_int64(values):
        return pa.int64()
    return pa.float64() if kinds in ({float}, {float, int}) else pa.string()


def _are_int64(values: Sequence[Any]) -> bool:
    """Whether there are values, and all of them are integers of 64 bits."""
    present = [value for value in values if value is not None]
    return {*map(type, present)} == {int} and all(-(2**63) <= value < 2**63 for value in present)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _flat(record: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


def _column(values: list[Any]) -> Any:
    """A column's values; 64-bit integers keep their type, since floats would lose digits."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if _are_int64(values):
        return pd.array(values, dtype="Int64" if None in values else "int64")
    return pd.Series(values, dtype=None if kinds in ({float}, {bool}) else object)
