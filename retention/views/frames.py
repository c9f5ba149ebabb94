"""Values as pandas frames: records of runs, entries of a bucket, and numbers of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from retention.buckets.entry import Entry

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


class RunRecords(list[dict[str, Any]]):
    """Outcomes of runs, newest first: a list of records that converts to a frame."""

    def to_pandas(self) -> pd.DataFrame:
        """The records, one per row, with a column for each number in them (`by_rule.max_age`)."""
        return frame_of(self)


class Entries(list[Entry]):
    """Entries of a bucket: a list that converts to a frame."""

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
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values if value is not None):
        return pd.array(values, dtype="Int64" if None in values else "int64")
    return pd.Series(values, dtype=None if kinds in ({float}, {bool}) else object)
