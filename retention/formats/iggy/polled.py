"""Answers of an Iggy 0.9 server to a poll: batches as its logs have them, cut to the messages that were asked for."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from retention.core.wording import counted
from retention.errors import DamagedError
from retention.formats.iggy import rows
from retention.formats.iggy.era_09 import LAYOUT, Era09
from retention.formats.iggy.messages import MessageColumns
from retention.formats.iggy.rows import END_OF_OFFSETS, ROWS

HEADER = struct.Struct("<IQI")
"""Partition, the offset of its last message, and the number of messages that follow."""
_CHECKSUM_BYTES = 8


@dataclass(frozen=True)
class Polled:
    """The messages of one answer."""

    rows: pa.RecordBatch
    """Shape `ROWS`, ascending; `segment` is 0, because an answer does not tell it."""
    last_offset: int
    """The offset of the partition's last message, 0 also for a partition without messages."""
    checksums: np.ndarray
    """uint64, the checksum of each message as stored; it covers id, payload and user headers."""


def polled(answer: bytes, partition: int, first: int, place: str) -> Polled:
    """The messages in an answer; every checksum of messages and batches is compared.

    Args:
        answer: the body of the answer.
        partition: the partition that was polled.
        first: the lowest offset that was asked for.
        place: the server, stream and topic, for errors.

    Raises:
        DamagedError: the answer is not one of a 0.9 server to this poll, or a checksum in it is wrong.
    """
    if len(answer) < HEADER.size:
        raise _damaged(place, partition, first, f"it has {counted(len(answer), 'byte')}")
    answered, last_offset, count = HEADER.unpack_from(answer)
    window = answer[HEADER.size :]
    whole = Era09().take(window, len(window))
    messages = _with_slices(whole.messages)
    if whole.problem or whole.end != len(window):
        raise _damaged(place, partition, first, whole.problem or "it ends within a batch")
    if answered != partition or count != len(messages):
        raise _damaged(place, partition, first, f"it names {counted(count, 'message')}")
    if not count:
        return Polled(
            pa.RecordBatch.from_pylist([], schema=ROWS), last_offset, np.empty(0, np.uint64)
        )
    for nth, problem in rows.problems(messages, first - 1, END_OF_OFFSETS).items():
        raise _damaged(place, partition, int(messages.offsets[nth]), problem)
    return Polled(
        rows.rows(window, messages, partition, 0), last_offset, _checksums(window, messages)
    )


def _with_slices(messages: MessageColumns) -> MessageColumns:
    """The messages; those after the beginning of a batch do not count its header if the server cut the batch."""
    is_cut = messages.offsets != messages.places
    alone = messages.bodies[:, 2] - messages.bodies[:, 0] + LAYOUT.header_bytes
    return replace(messages, sizes=np.where(is_cut, alone, messages.sizes))


def _checksums(window: bytes, messages: MessageColumns) -> np.ndarray:
    octets = np.frombuffer(window, np.uint8)
    starts = messages.bodies[:, 0] - LAYOUT.header_bytes
    fields = np.lib.stride_tricks.sliding_window_view(octets, _CHECKSUM_BYTES)[starts]
    return np.ascontiguousarray(fields).view("<u8")[:, 0]


def _damaged(place: str, partition: int, offset: int, problem: str) -> DamagedError:
    return DamagedError(
        f"{place}, partition {partition}: the server's answer from offset {offset:,} on cannot be read: {problem}; "
        "nothing of it was taken; it is damaged, or the server is none of version 0.9: look at the server's log, then "
        "try again"
    )
