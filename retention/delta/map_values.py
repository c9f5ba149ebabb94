"""Values of one key in a column of maps, as in partition values of files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_FEW = 256
"""The number of maps up to which the preparation costs more than a look into each."""


def map_values(maps: pa.ChunkedArray, key: str) -> pa.ChunkedArray:
    """The value of a key in each map, the first if it has several; null where it has none."""
    values = [_of_equal_maps(chunk, key) for chunk in maps.chunks]
    return pa.chunked_array(values, maps.type.item_type)


def _of_equal_maps(maps: pa.MapArray, key: str) -> pa.Array:
    """The values of one chunk, taken at once if all maps have as many keys and the key at the same place."""
    if len(maps) <= _FEW:
        return pa.array([_first(each, key) for each in maps.to_pylist()], maps.type.item_type)
    offsets = maps.offsets.to_numpy()
    first, width = int(offsets[0]), int(offsets[-1] - offsets[0]) // max(len(maps), 1)
    if not width or maps.null_count or (np.diff(offsets) != width).any():
        return pc.map_lookup(maps, key, "first")
    entries = len(maps) * width
    is_key = pc.equal(maps.keys.slice(first, entries), key)
    at = pc.indices_nonzero(is_key).to_numpy()
    place = at[0] if len(at) else 0
    if len(at) != len(maps) or (at != np.arange(place, entries, width)).any():
        return pc.map_lookup(maps, key, "first")
    return maps.items.slice(first, entries).take(pa.array(at))


def _first(entries: list[tuple[str, Any]] | None, key: str) -> Any:
    return next((value for name, value in entries or () if name == key), None)
