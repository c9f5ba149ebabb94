"""Messages of an Iggy log as rows of a table, and which of them a table cannot hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.formats.iggy import messages
from retention.formats.iggy.era import CHECKSUM
from retention.formats.iggy.messages import Messages
from schemas.bounds import MAX_SEQ

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
`size` is the bytes of the log, with those of a batch's header counted at its first message.
"""

END_OF_OFFSETS = MAX_SEQ + 1
"""The largest offset of a row is below, so that there is a next one."""
_TOO_LARGE = "its offset is larger than a table can hold"
_NS = 1_000
_LATEST_US = (2**63 - 1) // _NS


def problems(found: Messages, before: int, end: int) -> dict[int, str]:
    """Which messages, by their place in `found`, cannot be rows, and why.

    Args:
        found: in their order.
        before: the highest offset before them.
        end: the offset that all must be below: the number of the next log, or `END_OF_OFFSETS`.
    """
    holdable = (found.timestamps <= _LATEST_US) & (found.origin_timestamps <= _LATEST_US)
    below = found.offsets < np.uint64(end)
    fine = found.sound & holdable & below
    offsets = np.where(fine, found.offsets, np.uint64(0)).view(np.int64)
    highest = np.maximum.accumulate(np.concatenate([[before], np.where(fine, offsets, before)]))
    rising = offsets > highest[:-1]
    told: dict[int, str] = {}
    for nth in np.flatnonzero(~(fine & rising)).tolist():
        if not found.sound[nth]:
            told[nth] = CHECKSUM
        elif not below[nth]:
            told[nth] = _TOO_LARGE if end == END_OF_OFFSETS else f"the next log begins at {end}"
        elif not holdable[nth]:
            told[nth] = "its time is later than a table can hold"
        else:
            told[nth] = f"it follows offset {highest[nth]}, but offsets must rise"
    return told


def rows(window: bytes, found: Messages, partition: int, segment: int) -> pa.RecordBatch:
    """The messages of a window as rows of shape `ROWS`; all of them must be fit to be rows."""
    payloads, user_headers = messages.texts(window, found.bodies)
    count = len(found)
    columns = [
        np.full(count, partition, dtype=np.int32),
        np.full(count, segment, dtype=np.int64),
        found.offsets.astype(np.int64),
        found.timestamps.astype(np.int64) * _NS,
        user_headers,
        payloads,
        found.sizes,
        messages.decimals(found.ids),
        found.origin_timestamps.astype(np.int64) * _NS,
    ]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=ROWS)
