"""The columns of a message table: the authority on their names, Arrow types, units and nulls."""

from __future__ import annotations

import pyarrow as pa

MESSAGES = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("headers", pa.binary()),
        pa.field("payload", pa.binary()),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("deadline_ns", pa.int64()),
        pa.field("marker", pa.bool_()),
        pa.field("msg_id", pa.string()),
        pa.field("origin_ts_ns", pa.int64()),
    ]
)
"""One row per message.

`partition` and `segment` are Hive partition columns, kept in the path and not in the file. `ts_ns` and
`origin_ts_ns` are nanoseconds since the epoch, UTC; `time` is `ts_ns` truncated to microseconds, for people.
`headers` is the exact stored header block, null if there is none. `size` is the broker's byte accounting.
`deadline_ns` is null without a TTL, `NEVER` for `never`, else the instant of expiry. `marker` is true where a
message ends silently (a subject-delete marker or a KV purge).
"""

PARTITION_COLUMNS = ("partition", "segment")

FILE_COLUMNS = pa.schema([field for field in MESSAGES if field.name not in PARTITION_COLUMNS])
"""The columns of a data file: every column but the two that its path carries."""

RULE_COLUMNS = ("seq", "subject", "ts_ns", "size", "deadline_ns", "marker")
"""The narrow columns that rules read; headers and payload are never among them."""
