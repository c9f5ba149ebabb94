"""Which partition of a topic a message goes to: the one that it names, or that of its key (iggy `Partitioning`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh32_intdigest

from retention.core.spans import Array

IN_TURN = -1
"""Stands for the partition whose turn it is."""
MOST_KEY_BYTES = 255


def addresses(partition: pa.ChunkedArray, key: pa.ChunkedArray, partitions: int) -> Array:
    """The partition of each message, int64; `IN_TURN` of those that name none.

    Args:
        partition: int64; null: it names none.
        key: binary, null: it has none; all messages of one key go to one partition.
        partitions: how many the topic has.
    """
    encoded = key.combine_chunks().dictionary_encode()
    of_keys = [xxh32_intdigest(one) % partitions for one in encoded.dictionary.to_pylist()]
    of_key = pa.array(of_keys, pa.int64()).take(encoded.indices)
    found: Array = pc.fill_null(pc.coalesce(partition, of_key), IN_TURN).to_numpy()
    return found


def partition_in_turn(turn: int, partitions: int) -> int:
    """The partition of a batch that names none, `turn` such batches having gone before it (round robin)."""
    return int(np.mod(turn, partitions))
