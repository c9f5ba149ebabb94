"""Values as pandas frames: records of runs, entries of a bucket, and numbers of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from retention.buckets.entry import Entry

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]


class RunRecords(list[dict[str, Any]]):
    """Outcomes of runs, newest first: a list of records, which also becomes a frame."""

    def to_pandas(self) -> pd.DataFrame:
        """The records, one a row, with a column for each number in them (`by_rule.max_age`)."""
        return frame_of(self)


class Entries(list[Entry]):
    """Entries of a bucket: a list, which also becomes a frame."""

    def to_pandas(self) -> pd.DataFrame:
        """The entries, one a row: bucket, key, value (bytes), revision, created_ns, operation, delta."""
        return frame_of(map(vars, self))


def frame_of(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Records as a frame, one a row: whole numbers stay exact also where some are missing.

    What a record has by name has columns of its own, `name.key`; lists are values.
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
    """A column's values; numbers of 64 bits as such, which fractions could not hold."""
    import pandas as pd

    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values if value is not None):
        return pd.array(values, dtype="Int64" if None in values else "int64")
    return pd.Series(values, dtype=None if kinds in ({float}, {bool}) else object)
