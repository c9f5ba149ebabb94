"""The rows of an erasure: those whose columns have the values of a key; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from retention.core.members import Members
from retention.core.spans import Array
from retention.core.table_policy import Column


@dataclass(frozen=True)
class ErasedKeys:
    """Keys of the same columns."""

    columns: tuple[Column, ...]
    wanted: Members
    """The keys as bytes, as `key_bytes` makes them."""

    def takes(self, keys: pa.ChunkedArray) -> Array:
        """A mask of rows by their keys as bytes; a row with a null in a column has no key."""
        return np.asarray(self.wanted.mask(keys))


def columns_of(groups: Sequence[ErasedKeys]) -> dict[str, Column]:
    """Name in narrow rows → column, of all keys."""
    columns = dict.fromkeys(column for group in groups for column in group.columns)
    return {narrow_name(column): column for column in columns}


def narrow_name(column: Column) -> str:
    """The name of a column of a key in narrow rows."""
    return "erased:" + ".".join(column)
