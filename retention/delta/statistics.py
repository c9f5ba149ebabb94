"""Bounds of one column in every live file, read from the log; never narrower than the values in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.delta.json_lines import parse_lines
from retention.delta.map_values import map_values
from retention.delta.shapes import STATS_PARSED
from retention.delta.snapshot import DeltaSnapshot
from retention.storage.checksum import parse_json
from retention.storage.parallel import in_threads

INTEGERS = frozenset({"byte", "short", "integer", "long"})
"""Delta's types with bounds in their own unit."""

_DAY_US = 86_400_000_000
_LAST_DAY = 100_000_000
"""The day, from the epoch on, up to which an instant in microseconds fits into 64 bits."""
_TRUNCATED_US = 1_000
"""Every writer truncates an instant to milliseconds, also the maximum."""
_SLICE = 1 << 14
_THREADS = 2
_FEW = 64
"""The number of texts up to which a parser of columns costs more than the texts, because it works in another thread."""
_TOO_LARGE = 1 << 63
_DATE = r"\d{4}-\d\d-\d\d"
_TIME = _DATE + r"[T ]\d\d:\d\d:\d\d(\.\d{1,6})?"
_NULL_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__")


class _Kind(NamedTuple):
    """Values of a type as text: the form that is understood, and Arrow's type for it."""

    form: str
    type: pa.DataType


_KINDS = {
    "timestamp": _Kind(f"^{_TIME}(Z|[+-]\\d\\d:\\d\\d)$", pa.timestamp("us", "UTC")),
    "timestamp_ntz": _Kind(f"^{_TIME}$", pa.timestamp("us")),
    "date": _Kind(f"^{_DATE}$", pa.date32()),
    **dict.fromkeys(INTEGERS, _Kind(r"^-?\d{1,19}$", pa.int64())),
}


_Place = tuple[str, ...]
_Wanted = Mapping[_Place, pa.DataType]
"""Place of a value in statistics → its type."""


class ColumnBounds(NamedTuple):
    """Bounds of a column, one row for each row of a snapshot's `files`; null is unknown, so that the file decides.

    `min` and `max` are microseconds since the epoch (of a date, its first and last; of a time without a zone, as if in
    UTC), or integers in their own unit. They bound the rows that deletion vectors hide, too.
    """

    min: pa.Array
    max: pa.Array
    null_count: pa.Array
    """Null values, at most; exact if the file has no vector."""
    rows: pa.Array
    """Rows without those that a vector hides."""


def bounds(snapshot: DeltaSnapshot, path: Sequence[str], kind: str) -> ColumnBounds:
    """The bounds of a column in every live file.

    Args:
        snapshot: the table.
        path: the physical names from a column down to a leaf.
        kind: Delta's type of the leaf; one without exact bounds in the log (double, string, …) has none here.
    """
    live = snapshot.files
    is_partition = len(path) == 1 and path[0] in snapshot.partition_names
    logged = _logged(live, () if is_partition else path, kind)
    dead = pc.fill_null(pc.struct_field(live["vector"], "cardinality"), 0)
    rows = pc.subtract(logged.rows, dead.combine_chunks())
    if not is_partition:
        low, high = _widened(logged.min, logged.max, kind)
        return ColumnBounds(low, high, logged.null_count, rows)
    texts = map_values(live["partition_values"], path[0]).combine_chunks()
    is_null = pc.or_kleene(pc.is_null(texts), pc.is_in(texts, value_set=pa.array(_NULL_PARTITIONS)))
    values = _from_text(pc.if_else(is_null, None, texts), kind)
    low, high = _widened(values, values, kind)
    return ColumnBounds(low, high, pc.if_else(is_null, rows, 0), rows)


class LoggedIntegers:
    """Integers in the statistics of live files, as logged; the same text is parsed once, as long as it is live."""

    def __init__(self, leaves: Sequence[_Place]) -> None:
        """Parse nothing yet; leaves are the places of integers, such as `("minValues", "seq")`."""
        self._wanted = dict.fromkeys(leaves, pa.int64())
        self._texts = pa.chunked_array([], pa.string())
        self._known: list[pa.Array] = []

    def of(self, live: pa.Table) -> dict[_Place, pa.Array]:
        """The integers of each file; null where it has none.

        Args:
            live: shape `LIVE_FILES`, or with `stats_parsed`, too.
        """
        values = self._of_texts(live["stats"])
        if STATS_PARSED not in live.schema.names:
            return values
        typed = live[STATS_PARSED].combine_chunks()
        return {
            leaf: pc.coalesce(logged, _as_integers(_leaf(typed, leaf), "long"))
            for leaf, logged in values.items()
        }

    def _of_texts(self, texts: pa.ChunkedArray) -> dict[_Place, pa.Array]:
        # The texts are those of the snapshot, not copies of them.
        self._known, self._texts = self._integers(texts), texts
        return dict(zip(self._wanted, self._known, strict=True))

    def _integers(self, texts: pa.ChunkedArray) -> list[pa.Array]:
        """The integers of each text, one column for each leaf."""
        if not len(self._texts):
            return self._parsed(texts.chunks)
        before = pc.index_in(texts, value_set=self._texts)
        new = texts.filter(before.is_null())
        rows = before.fill_null(-1).to_numpy().astype(np.int64)
        rows[rows < 0] = np.arange(len(self._texts), len(self._texts) + len(new))
        pieces = zip(self._known, self._parsed(new.chunks), strict=True)
        together = pa.table(list(map(pa.chunked_array, pieces)), list(map("/".join, self._wanted)))
        return [column.combine_chunks() for column in together.take(pa.array(rows)).columns]

    def _parsed(self, chunks: Sequence[pa.StringArray]) -> list[pa.Array]:
        """The integers in texts, one column for each leaf."""
        pieces = [list(each.values()) for each in _parsed(chunks, self._wanted)]
        if len(pieces) == 1:
            return pieces[0]
        nothing = pa.array([], pa.int64())
        columns = zip(*pieces, strict=True) if pieces else ([] for _ in self._wanted)
        return [pa.concat_arrays([nothing, *column]) for column in columns]


def _widened(low: pa.Array, high: pa.Array, kind: str) -> tuple[pa.Array, pa.Array]:
    """Bounds that include everything that a writer may have truncated; contradictory ones are unknown."""
    if kind == "date":
        low, high = (_within_calendar(each) for each in (low, high))
        low, high = pc.multiply(low, _DAY_US), pc.multiply(high, _DAY_US)
        high = pc.add(high, _DAY_US - 1)
    elif kind not in INTEGERS:
        high = pc.add(high, _TRUNCATED_US)
    agree = pc.fill_null(pc.less_equal(low, high), fill_value=True)
    return pc.if_else(agree, low, None), pc.if_else(agree, high, None)


def _within_calendar(days: pa.Array) -> pa.Array:
    return pc.if_else(pc.less(pc.abs(days), _LAST_DAY), days, None)


def _logged(live: pa.Table, path: Sequence[str], kind: str) -> ColumnBounds:
    """The bounds as logged, with dead rows and not widened; days for dates. Without a path, the rows alone."""
    logged = _of_json(live["stats"], path, kind)
    if STATS_PARSED not in live.schema.names:
        return logged
    typed = _of_struct(live[STATS_PARSED].combine_chunks(), path, kind)
    return ColumnBounds(*(pc.coalesce(*each) for each in zip(logged, typed, strict=True)))


def _of_struct(statistics: pa.StructArray, path: Sequence[str], kind: str) -> ColumnBounds:
    low, high, nulls, rows = (_leaf(statistics, leaf) for leaf in _leaves(path))
    return ColumnBounds(
        _as_integers(low, kind),
        _as_integers(high, kind),
        _as_integers(nulls, "long"),
        _as_integers(rows, "long"),
    )


def _leaves(path: Sequence[str]) -> list[_Place]:
    """The places of a column's bounds in statistics, in the order of `ColumnBounds`."""
    return [*((kind, *path) for kind in ("minValues", "maxValues", "nullCount")), ("numRecords",)]


def _leaf(array: pa.Array, path: Sequence[str]) -> pa.Array:
    for name in path:
        if not pa.types.is_struct(array.type) or array.type.get_field_index(name) < 0:
            return pa.nulls(len(array), pa.int64())
        array = pc.struct_field(array, name)
    return array


def _as_integers(values: pa.Array, kind: str) -> pa.Array:
    """Typed values as integers; null if their type is not the kind's."""
    known = _KINDS.get(kind)
    is_time = pa.types.is_timestamp(values.type)
    if known is None or pa.types.is_nested(values.type):
        return pa.nulls(len(values), pa.int64())
    if is_time and pa.types.is_timestamp(known.type):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    if pa.types.is_date32(values.type) and kind == "date":
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_integer(values.type) and kind in INTEGERS:
        return values.cast(pa.int64())
    return pa.nulls(len(values), pa.int64())


def _of_json(statistics: pa.ChunkedArray, path: Sequence[str], kind: str) -> ColumnBounds:
    value = pa.int64() if kind in INTEGERS else pa.string()
    low, high, nulls, rows = _leaves(path)
    wanted = {rows: pa.int64()}
    if path:
        wanted[nulls] = pa.int64()
    if path and kind in _KINDS:
        wanted |= {low: value, high: value}
    nothing = pa.array([], pa.int64())
    parsed: list[list[pa.Array]] = [[nothing] for _ in ColumnBounds._fields]
    for columns in _parsed(statistics.chunks, wanted):
        unknown = pa.nulls(len(columns[rows]), pa.int64())
        for pieces, leaf in zip(parsed, (low, high, nulls, rows), strict=True):
            values = columns.get(leaf, unknown)
            pieces.append(_from_text(values, kind) if pa.types.is_string(values.type) else values)
    return ColumnBounds(*map(pa.concat_arrays, parsed))


def _parsed(chunks: Sequence[pa.StringArray], wanted: _Wanted) -> Iterator[dict[_Place, pa.Array]]:
    """Values of leaves in JSON texts, a slice of the texts at a time; null where there is no such value."""
    slices = [
        chunk.slice(start, _SLICE) for chunk in chunks for start in range(0, len(chunk), _SLICE)
    ]
    return in_threads(partial(_of_slice, wanted), slices, _THREADS)


def _of_slice(wanted: _Wanted, texts: pa.StringArray) -> dict[_Place, pa.Array]:
    if len(texts) <= _FEW:
        return _in_rows(texts, wanted)
    try:
        return _in_columns(texts, wanted)
    except pa.ArrowException:
        return _in_rows(texts, wanted)


def _in_columns(texts: pa.StringArray, wanted: _Wanted) -> dict[_Place, pa.Array]:
    """Values of leaves in JSON objects, parsed at once.

    Raises:
        pa.ArrowException: a text is not an object of such leaves.
    """
    schema = pa.schema(_fields(wanted))
    is_object = pc.fill_null(pc.starts_with(texts, "{"), fill_value=False)
    objects = texts if pc.all(is_object).as_py() else pc.if_else(is_object, texts, "{}")
    lines = pa.ListArray.from_arrays([0, len(objects)], objects)
    content = pc.binary_join(lines, "\n")[0].as_buffer()
    parsed = parse_lines(content, schema, content.size + 1)
    if parsed.num_rows != len(texts):
        raise pa.ArrowInvalid("a text has several objects")
    return {leaf: _leaf(parsed[leaf[0]].combine_chunks(), leaf[1:]) for leaf in wanted}


def _in_rows(texts: pa.StringArray, wanted: _Wanted) -> dict[_Place, pa.Array]:
    """Values of leaves in JSON texts of any content; null where there is no such value."""
    parsed = [_object(text) for text in texts.to_pylist()]
    around = {
        above: [_inner(each, above) for each in parsed] for above in {leaf[:-1] for leaf in wanted}
    }
    return {
        leaf: _values([each.get(leaf[-1]) for each in around[leaf[:-1]]], kind)
        for leaf, kind in wanted.items()
    }


def _object(text: str | None) -> Any:
    try:
        return parse_json(text or "{}")
    except ValueError:
        return None


def _inner(known: Any, names: Sequence[str]) -> dict[str, Any]:
    """The object inside others, by the names from the outermost one on; empty if there is none."""
    for name in names:
        known = known.get(name) if isinstance(known, dict) else None
    return known if isinstance(known, dict) else {}


def _values(given: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values of a type, text or integers; null for all others."""
    if pa.types.is_string(kind):
        return pa.array([each if isinstance(each, str) else None for each in given], kind)
    # A truth value would be an instance of `int`.
    return pa.array(
        [
            each if type(each) is int and -_TOO_LARGE <= each < _TOO_LARGE else None
            for each in given
        ],
        kind,
    )


def _fields(wanted: _Wanted) -> list[pa.Field]:
    """The fields of objects that have values at given places."""
    inner: dict[str, dict[_Place, pa.DataType]] = {}
    for (name, *rest), kind in wanted.items():
        inner.setdefault(name, {})[tuple(rest)] = kind
    return [
        pa.field(name, kinds.get(()) or pa.struct(_fields(kinds))) for name, kinds in inner.items()
    ]


def _from_text(texts: pa.StringArray, kind: str) -> pa.Array:
    """Texts as integers: microseconds, days of dates, or the number itself; null for any other form."""
    known = _KINDS.get(kind)
    if known is None:
        return pa.nulls(len(texts), pa.int64())
    is_known = pc.match_substring_regex(texts, known.form)
    return _cast(pc.if_else(is_known, texts, None), known.type)


def _cast(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Texts of a type's form as integers; null for a text with no such value, as the 13th month."""
    try:
        values = texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) > 1:
            return pa.concat_arrays([_cast(texts.slice(at, 1), kind) for at in range(len(texts))])
        return pa.nulls(1, pa.int64())
    return (values.cast(pa.int32()) if pa.types.is_date32(kind) else values).cast(pa.int64())
