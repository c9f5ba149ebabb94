"""Statistics of a new data file, gathered while it is written, in the form of the log, truncated as by Delta."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from math import isfinite
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.delta import stats_json
from retention.delta.schema import Leaf, Path, arrow_type

TEXT_CHARACTERS = 32
"""The characters of a bound of text, as Spark writes it."""
_LAST_ASCII, _LAST = "\x7f", "\U0010ffff"
"""The characters that end a truncated maximum: no text with that prefix is greater."""


class CopyStats:
    """Counts and bounds of the columns that a source's statistics have."""

    def __init__(
        self, source: Mapping[str, Any], leaves: list[Leaf], names: Mapping[Path, Path]
    ) -> None:
        """Begin without rows.

        Args:
            source: the statistics of the source, as the log has them.
            leaves: those of the table.
            names: physical path → path in the file; a leaf without one is null in each row.
        """
        counted, lower, upper = (
            source.get(kind) or {} for kind in ("nullCount", "minValues", "maxValues")
        )
        self._columns = [
            _Column(
                leaf.physical,
                names.get(leaf.physical),
                arrow_type(leaf.type)
                if _has(lower, leaf.physical) or _has(upper, leaf.physical)
                else None,
            )
            for leaf in leaves
            if _has(counted, leaf.physical)
        ]
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        """Count more rows."""
        self._rows += rows.num_rows
        for column in self._columns:
            column.add(rows)

    def text(self) -> str:
        """The value of `stats` in an `add` action."""
        stats: dict[str, Any] = {"numRecords": self._rows}
        for column in self._columns:
            for kind, value in column.values().items():
                if value is not None:
                    _put(stats.setdefault(kind, {}), column.physical, value)
        return stats_json.encode(stats | {"tightBounds": True})


class _Column:
    """The nulls of one leaf, and its bounds if it has a type with an order."""

    def __init__(self, physical: Path, name: Path | None, kind: pa.DataType | None) -> None:
        self.physical = physical
        self._name = name
        self._kind = None if kind in (pa.binary(), None) else kind
        self._nulls = 0
        self._bounds: list[pa.Scalar] = []

    def add(self, rows: pa.Table) -> None:
        if self._name is None:
            self._nulls += rows.num_rows
            return
        values = rows[self._name[0]]
        for name in self._name[1:]:
            values = pc.struct_field(values, name)
        self._nulls += values.null_count
        if self._kind is not None:
            self._widen(values)

    def _widen(self, values: pa.ChunkedArray) -> None:
        """Widen the bounds to more values; none remain if a value has no exact form in the table's type."""
        try:
            values = _plain(values).cast(self._kind)
        except pa.ArrowInvalid:
            self._kind, self._bounds = None, []
            return
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            self._kind, self._bounds = None, []
            return
        known = [pa.array(self._bounds, values.type)] if self._bounds else []
        bounds = pc.min_max(pa.chunked_array([*known, *values.chunks], values.type))
        if bounds["min"].is_valid:
            self._bounds = [bounds["min"], bounds["max"]]

    def values(self) -> dict[str, Any]:
        """The column's numbers by their names in the log; None for an absent one."""
        lower, upper = (_value(bound) for bound in self._bounds or [None, None])
        return {
            "minValues": _lower_bound(lower),
            "maxValues": _upper_bound(upper),
            "nullCount": self._nulls,
        }


def _value(bound: pa.Scalar | None) -> Any:
    """A bound as a value of Python; None if that has no such value, as after the year 9999."""
    try:
        return None if bound is None else bound.as_py()
    except (ValueError, OverflowError):
        return None


def _plain(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values without a dictionary."""
    if pa.types.is_dictionary(values.type):
        return values.cast(values.type.value_type)
    return values


def _lower_bound(value: Any) -> Any:
    return value[:TEXT_CHARACTERS] if isinstance(value, str) else _form(value)


def _upper_bound(value: Any) -> Any:
    """The maximum; of long text, its prefix and a character that no continuation exceeds."""
    if not isinstance(value, str):
        return _form(value)
    if len(value) <= TEXT_CHARACTERS:
        return value
    following = value[TEXT_CHARACTERS]
    if following == _LAST:
        return None
    return value[:TEXT_CHARACTERS] + (_LAST_ASCII if following < _LAST_ASCII else _LAST)


def _form(value: Any) -> Any:
    """A bound as the log has it; None if JSON or some reader has no form for it."""
    if isinstance(value, datetime):
        text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def _has(tree: Mapping[str, Any], path: Path) -> bool:
    value: Any = tree
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return not isinstance(value, Mapping)


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
