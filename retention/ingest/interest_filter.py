"""The messages of a batch that are stored: with interest and `unmatched: remove`, those that somebody wants."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.config.checks.consumer_filters import filters_of, has_wildcard_look_alike
from retention.context.context import OpenedStream
from retention.core.subjects import matching_mask
from retention.ports import Snapshot
from retention.stores.consumer_table import ConsumerTable


def asks_consumers(opened: OpenedStream) -> bool:
    """Whether a stream's consumers decide what is stored of what is published to it."""
    config = opened.config
    return config.retention == "interest" and config.unmatched == "remove"


def needed_mask(opened: OpenedStream, snapshot: Snapshot, subjects: pa.ChunkedArray) -> np.ndarray:
    """A mask of the messages that some consumer wants, be it stored or listed in the configuration.

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
    filters |= {consumer.name: consumer.filters for consumer in opened.config.consumers}
    if not filters or any(_wants_all(opened, patterns) for patterns in filters.values()):
        return np.ones(len(subjects), dtype=bool)
    encoded = subjects.combine_chunks().dictionary_encode()
    wanted = matching_mask(
        encoded.dictionary, {pattern for patterns in filters.values() for pattern in patterns}
    )
    return np.asarray(wanted, dtype=bool)[encoded.indices.to_numpy()]


def _wants_all(opened: OpenedStream, filters: tuple[str, ...]) -> bool:
    """Whether a consumer wants everything, or what it wants cannot be told."""
    return set(filters) in (set(), set(opened.config.subjects)) or any(
        map(has_wildcard_look_alike, filters)
    )
