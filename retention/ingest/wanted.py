"""Published messages that consumers want, on a stream that stores no others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.config.checks.consumer_filters import filters_of, has_wildcard_look_alike
from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.core.subjects import matching_mask
from retention.stores.consumer_table import ConsumerTable


def asks_consumers(opened: OpenedStream) -> bool:
    """Whether a stream's consumers decide which published messages are stored."""
    config = opened.config
    return config.retention == "interest" and config.unmatched == "remove"


def wanted_mask(opened: OpenedStream, counters: Counters, subjects: pa.ChunkedArray) -> np.ndarray:
    """A mask of the messages that some consumer wants, whether stored or listed in the configuration.

    As for a pass, a stream without any consumer keeps everything.

    Args:
        opened: the stream.
        counters: those of the version that the batch commits on, read before consumers are: a later edit makes that
            commit fail.
        subjects: each message's subject, as it would be stored.

    Raises:
        DamagedError: a consumer's record cannot be read.
    """
    records = ConsumerTable(opened.root).live(counters)
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
    """Whether a consumer wants everything, or its interest is unknown."""
    return set(filters) in (set(), set(opened.config.subjects)) or any(
        map(has_wildcard_look_alike, filters)
    )
