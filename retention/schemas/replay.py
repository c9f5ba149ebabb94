"""The Arrow schemas of the state from which the next pass of a stream goes on with its replay."""

from __future__ import annotations

import pyarrow as pa

GONE = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("fate", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("code", pa.int32()),
        pa.field("removed_ns", pa.int64()),
        pa.field("by_server_seq", pa.int64()),
    ]
)
"""One row per message that the server does not hold, ascending by `seq`; columns as in the fates of a replay."""

AHEAD = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("server_seq", pa.int64(), nullable=False),
        pa.field("subject", pa.binary(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("deadline_ns", pa.int64()),
        pa.field("silent", pa.bool_(), nullable=False),
    ]
)
"""One row per message that expired after the last publish and is not stored here any more, ascending by `seq`.

`subject` is a digest. A publish that arrives later, of an instant before the expiry, finds the message on the server.
"""

REMEMBERED = pa.schema(
    [
        pa.field("digest", pa.binary(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
    ]
)
"""One row per message id that the server remembers: its digest, and sequence and instant of its message there."""

SHIFTS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("shift", pa.int64(), nullable=False),
    ]
)
"""From the message `seq` here on, sequences on the server differ by `shift` from those here; ascending by `seq`."""
