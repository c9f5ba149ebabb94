"""The Arrow schemas of facts about data files: the table log's view, full statistics, subject counts."""

from __future__ import annotations

from typing import TypedDict

import pyarrow as pa

LOGGED_FILES = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("file_bytes", pa.int64(), nullable=False),
        pa.field("modified_ms", pa.int64(), nullable=False),
    ]
)
"""A live data file as the table's log identifies it.

`path` is relative to `messages/`, undecoded, with `/`; `file_bytes` is the length of the file, `modified_ms`
milliseconds since the epoch. Together they are the key under which statistics are cached, and what a plan pins.
"""

FILE_STATS = pa.schema(
    [
        *LOGGED_FILES,
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("min_seq", pa.int64(), nullable=False),
        pa.field("max_seq", pa.int64(), nullable=False),
        pa.field("min_ts_ns", pa.int64(), nullable=False),
        pa.field("max_ts_ns", pa.int64(), nullable=False),
        pa.field("first_ts_ns", pa.int64(), nullable=False),
        pa.field("last_ts_ns", pa.int64(), nullable=False),
        pa.field("never", pa.int64(), nullable=False),
        pa.field("deadlines", pa.int64(), nullable=False),
        pa.field("min_deadline_ns", pa.int64()),
        pa.field("max_deadline_ns", pa.int64()),
        pa.field("markers", pa.int64(), nullable=False),
        pa.field("in_time_order", pa.bool_(), nullable=False),
    ]
)
"""A data file with all statistics from which rules may decide without opening it.

`messages` counts rows, `bytes` sums `size`. `first_ts_ns` and `last_ts_ns` belong to the lowest and the highest
sequence. `never` counts messages whose deadline is `NEVER`, `deadlines` those with any other deadline, and
`min_deadline_ns` and `max_deadline_ns` bound those others only (null if there are none). `in_time_order`: `ts_ns`
never falls as `seq` rises.
"""


class RowSizes(TypedDict):
    """The fields of `FILE_STATS` that `seq` and `size` determine."""

    messages: int
    bytes: int
    min_seq: int
    max_seq: int


class RowStats(RowSizes):
    """The fields of `FILE_STATS` that rows determine."""

    min_ts_ns: int
    max_ts_ns: int
    first_ts_ns: int
    last_ts_ns: int
    never: int
    deadlines: int
    min_deadline_ns: int | None
    max_deadline_ns: int | None
    markers: int
    in_time_order: bool


class FileStats(RowStats):
    """A row of `FILE_STATS`."""

    path: str
    partition: int
    segment: int
    file_bytes: int
    modified_ms: int


KEPT_IDS = pa.schema(
    [
        pa.field("digest", pa.binary(16), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
    ]
)
"""A message id that still counts although its message is not in the table: its digest, and the message's sequence and
time.
"""

SUBJECT_COUNTS = pa.schema(
    [
        pa.field("subject", pa.string(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
    ]
)
"""The subject digest of one data file: of each subject in it the number of messages and the highest sequence."""

SUBJECT_COUNTS_OF_FILES = pa.schema([pa.field("file", pa.int64(), nullable=False), *SUBJECT_COUNTS])
"""The subject digests of some data files, `file` being the row number of each among them."""

DELETIONS = pa.schema(
    [
        pa.field("subject", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
    ]
)
"""The messages of one data file that delete their subject (docs/semantics/key-values.md), ascending by sequence."""
