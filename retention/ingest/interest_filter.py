"""Which messages of a batch are stored: with interest and `unmatched: remove`, those that somebody wants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.config.checks.consumer_filters import filters_of, has_wildcard_look_alike
from retention.context.context import OpenedStream
from retention.core.subjects import matching_mask
from retention.ports import Snapshot
from retention.stores.consumer_table import ConsumerTable


def asks_consumers(opened: OpenedStream) -> bool:
    """Whether it rests on a stream's consumers what is stored of what is published to it."""
    config = opened.config
    return config.retention == "interest" and config.unmatched == "remove"


def needed_mask(opened: OpenedStream, snapshot: Snapshot, subjects: pa.ChunkedArray) -> np.ndarray:
    """Which messages some consumer wants, those that the configuration lists among them; a mask.

    As for a pass, a stream without any consumer keeps everything.

    Args:
        opened: the stream.
        snapshot: what the batch's commit rests on, opened before: an edit that is counted later refuses that commit.
        subjects: each message's subject, as it would be stored.

    Raises:
        DamagedError: a consumer's record cannot be read.
    """
    records = ConsumerTable(opened.root).live(snapshot.counters)
    filters = {record.consumer: filters_of(record.config) for record in records}
    filters |= {one.name: one.filters for one in opened.config.consumers}
    if not filters or any(_wants_all(opened, own) for own in filters.values()):
        return np.ones(len(subjects), dtype=bool)
    encoded = subjects.combine_chunks().dictionary_encode()
    wanted = matching_mask(encoded.dictionary, {one for own in filters.values() for one in own})
    return np.asarray(wanted, dtype=bool)[encoded.indices.to_numpy()]


def _wants_all(opened: OpenedStream, filters: tuple[str, ...]) -> bool:
    """Whether a consumer wants everything, or what it wants cannot be told."""
    return set(filters) in (set(), set(opened.config.subjects)) or any(
        map(has_wildcard_look_alike, filters)
    )
