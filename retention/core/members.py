"""A set of texts or bytes, asked for many small columns: Arrow builds a hash table of all of it for each column."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Members:
    """A set of values of one type."""

    values: pa.Array = field(repr=False)

    @cached_property
    def _set(self) -> frozenset[object]:
        return frozenset(self.values.to_pylist())

    def mask(self, column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Whether each value of a column of this type, or of one that casts to it, is in the set; a null is not.

        >>> Members(pa.array(["a", "b", "c"])).mask(pa.array(["b", None])).to_pylist()
        [True, False]
        """
        values = self.values.cast(column.type)
        if len(values) > len(column):
            distinct = pc.unique(column)
            is_one = [value in self._set for value in distinct.to_pylist()]
            values = distinct.filter(pa.array(is_one, pa.bool_()))
        return pc.is_in(column, value_set=values)
