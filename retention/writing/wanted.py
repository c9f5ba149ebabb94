"""Which messages of a batch are stored: with interest and `unmatched: remove`, those that somebody wants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.opened import OpenedStream
from retention.passes.interests import filters_of
from retention.ports import Snapshot
from retention.stores.consumers import ConsumerTable
from retention.subjects import matching_mask


def asks_consumers(opened: OpenedStream) -> bool:
    """Whether it rests on a stream's consumers what is stored of what is published to it."""
    config = opened.config
    return config.retention == "interest" and config.unmatched == "remove"


def wanted_by_somebody(
    opened: OpenedStream, snapshot: Snapshot, subjects: pa.ChunkedArray
) -> np.ndarray:
    """Which messages some consumer wants, those that the configuration lists among them; a mask.

    As for a pass, a stream without any consumer keeps everything.

    Args:
        opened: the stream.
        snapshot: opened before: its counter of edits tells whether a consumer was edited since.
        subjects: each message's subject, as it would be stored.

    Raises:
        DamagedError: a consumer's record cannot be read.
    """
    records = ConsumerTable(opened.root).live(snapshot.counters)
    filters = {record.consumer: filters_of(record.config) for record in records}
    filters |= {one.name: one.filters for one in opened.config.consumers}
    of_stream = set(opened.config.subjects)
    if not filters or any(set(own) in (set(), of_stream) for own in filters.values()):
        return np.ones(len(subjects), dtype=bool)
    encoded = subjects.combine_chunks().dictionary_encode()
    wanted = matching_mask(encoded.dictionary, {one for own in filters.values() for one in own})
    return np.asarray(wanted, dtype=bool)[encoded.indices.to_numpy()]
