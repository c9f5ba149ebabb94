"""Checks of messages sent to a topic: Iggy's refusals, with the server's names of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.layout.partitioner import MOST_KEY_BYTES
from retention.layout.topic_segment_roll import header_bytes_of_batch, record_sizes

MOST_PAYLOAD_BYTES = 64_000_000
MOST_HEADER_BYTES = 100_000


@dataclass(frozen=True)
class TopicRefusal:
    """The refusal of a message, with the reason."""

    row: int
    error: str
    """The server's name of the error."""
    code: int
    reason: str


def refusals_of(sent: pa.Table, policy: TopicPolicy) -> Iterator[TopicRefusal]:
    """Find the messages that the server refuses, in order, each with its first error. A full topic refuses nothing.

    Args:
        sent: shape `formats.iggy.lines.SENT`.
        policy: the topic's rules.
    """
    masks, errors = zip(*((mask, error) for mask, *error in _checks(sent, policy)), strict=True)
    for row in np.flatnonzero(np.logical_or.reduce(masks)).tolist():
        first = next(number for number, mask in enumerate(masks) if mask[row])
        yield TopicRefusal(row, *errors[first])


def sizes_of(sent: pa.Table, policy: TopicPolicy) -> Array:
    """Bytes of each message's record in the log."""
    return record_sizes(_lengths(sent["headers"]), _lengths(sent["payload"]), policy)


def _checks(sent: pa.Table, policy: TopicPolicy) -> Iterator[tuple[Array, str, int, str]]:
    partition = pc.fill_null(sent["partition"], 0).to_numpy()
    last = policy.partitions - 1
    yield (
        (partition < 0) | (partition > last),
        "PartitionNotFound",
        3007,
        f"the topic has partitions 0 to {last}",
    )
    has_key = pc.is_valid(sent["key"]).to_numpy()
    key = _lengths(sent["key"])
    yield (
        has_key & ((key < 1) | (key > MOST_KEY_BYTES)),
        "InvalidKeyValueLength",
        4028,
        f"a key has 1 to {MOST_KEY_BYTES} bytes",
    )
    payload, headers = _lengths(sent["payload"]), _lengths(sent["headers"])
    yield payload == 0, "InvalidMessagePayloadLength", 4025, "it has no payload"
    yield (
        payload > MOST_PAYLOAD_BYTES,
        "TooBigMessagePayload",
        4022,
        f"a payload has {MOST_PAYLOAD_BYTES:,} bytes at most",
    )
    yield (
        headers > MOST_HEADER_BYTES,
        "TooBigUserHeaders",
        4017,
        f"user headers have {MOST_HEADER_BYTES:,} bytes at most",
    )
    if policy.profile == "modern":
        yield (
            record_sizes(headers, payload, policy) + header_bytes_of_batch(policy)
            > policy.max_message_size,
            "InvalidCommand",
            3,
            f"with its headers it is longer than max_message_size, {policy.max_message_size:,} bytes",
        )


def _lengths(column: pa.ChunkedArray) -> Array:
    lengths: Array = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return lengths
