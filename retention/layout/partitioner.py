"""The partition of a topic's message: the named one, or the one of its key (iggy `Partitioning`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh32_intdigest

from retention.core.spans import Array

ROUND_ROBIN = -1
"""The address of a message that names no partition; the round-robin turn decides its partition."""
TURN = "retention/turn"
"""The log's counter of batches that named no partition, among the batch counters of writers."""
MOST_KEY_BYTES = 255


def partition_addresses(partition: pa.ChunkedArray, key: pa.ChunkedArray, partitions: int) -> Array:
    """The partition of each message, int64; `ROUND_ROBIN` for a message without partition and key.

    Args:
        partition: int64; null for a message that names no partition.
        key: binary; null for a message without key; all messages of one key have one partition.
        partitions: the number of the topic's partitions.
    """
    encoded = key.combine_chunks().dictionary_encode()
    of_keys = [xxh32_intdigest(content) % partitions for content in encoded.dictionary.to_pylist()]
    of_key = pa.array(of_keys, pa.int64()).take(encoded.indices)
    chosen: Array = pc.fill_null(pc.coalesce(partition, of_key), ROUND_ROBIN).to_numpy()
    return chosen


def partition_in_turn(turn: int, partitions: int) -> int:
    """The partition of a batch without a named one, after `turn` such batches (round robin)."""
    return int(np.mod(turn, partitions))
