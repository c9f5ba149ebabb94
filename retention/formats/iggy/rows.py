"""Messages of an Iggy log as rows of a table, and the reasons why some do not fit a table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.formats.iggy import messages
from retention.formats.iggy.era import CHECKSUM
from retention.formats.iggy.messages import MessageColumns
from retention.schemas.bounds import MAX_SEQ

ROWS = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("msg_id", pa.string(), nullable=False),
        pa.field("origin_ts_ns", pa.int64(), nullable=False),
    ]
)
"""One row per message.

`segment` is the number in the log's name, `seq` the offset. `ts_ns` is the broker's time and `origin_ts_ns` the
producer's, in nanoseconds. `headers` are the user headers as stored, null for none; `msg_id` is the id in decimal.
`size` is the bytes in the log; the bytes of a batch's header count with its first message.
"""

END_OF_OFFSETS = MAX_SEQ + 1
"""The end of the offsets of rows, exclusive, so that the largest offset has a successor."""
_TOO_LARGE = "its offset is too large for a table"
_NS = 1_000
_LATEST_US = (2**63 - 1) // _NS


def problems(candidates: MessageColumns, before: int, end: int) -> dict[int, str]:
    """The messages that cannot be rows: index in `candidates` → reason.

    Args:
        candidates: messages in their order.
        before: the highest offset before them.
        end: the end of their offsets, exclusive: the number of the next log, or `END_OF_OFFSETS`.
    """
    holdable = (candidates.timestamps <= _LATEST_US) & (candidates.origin_timestamps <= _LATEST_US)
    below = candidates.offsets < np.uint64(end)
    fine = candidates.sound & holdable & below
    offsets = np.where(fine, candidates.offsets, np.uint64(0)).view(np.int64)
    highest = np.maximum.accumulate(np.concatenate([[before], np.where(fine, offsets, before)]))
    rising = offsets > highest[:-1]
    reasons: dict[int, str] = {}
    for nth in np.flatnonzero(~(fine & rising)).tolist():
        if not candidates.sound[nth]:
            reasons[nth] = CHECKSUM
        elif not below[nth]:
            reasons[nth] = _TOO_LARGE if end == END_OF_OFFSETS else f"the next log begins at {end}"
        elif not holdable[nth]:
            reasons[nth] = "its time is too late for a table"
        else:
            reasons[nth] = f"it follows offset {highest[nth]}, but offsets must rise"
    return reasons


def rows(window: bytes, fit: MessageColumns, partition: int, segment: int) -> pa.RecordBatch:
    """The rows of shape `ROWS` from messages of a window; no message may have a problem (see `problems`)."""
    payloads, user_headers = messages.texts(window, fit.bodies)
    count = len(fit)
    columns = [
        np.full(count, partition, dtype=np.int32),
        np.full(count, segment, dtype=np.int64),
        fit.offsets.astype(np.int64),
        fit.timestamps.astype(np.int64) * _NS,
        user_headers,
        payloads,
        fit.sizes,
        messages.decimals(fit.ids),
        fit.origin_timestamps.astype(np.int64) * _NS,
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=ROWS)
