"""The Arrow schema of the sequences that a run removes, stored beside the stream with the run's other records."""

from __future__ import annotations

import pyarrow as pa

from retention.schemas.files import LOGGED_FILES

RUN_RANGES = pa.schema(
    [
        *[LOGGED_FILES.field(name) for name in ("path", "partition", "segment")],
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64()),
        pa.field("rules", pa.list_(pa.string()), nullable=False),
        pa.field("counts", pa.list_(pa.int64()), nullable=False),
        pa.field("except_firsts", pa.list_(pa.int64()), nullable=False),
        pa.field("except_lasts", pa.list_(pa.int64()), nullable=False),
    ]
)
"""A range of sequences that a run removes from one file: every message of the file from `first_seq` to `last_seq`,
both inclusive, except those in the ranges of `except_firsts` and `except_lasts` (ascending, disjoint, both ends
inclusive), which were removed before or have rows of their own.

`messages` and `bytes` (by the broker's accounting, null if they were not counted) are the removed ones. `rules` are the
names of the rules that remove them and `counts` the messages of each: mostly one rule; several where statistics decided
how many messages each removes from a file, without reading rows; none for a repair, which has no rule. `segment`
is the file's at the time. Rows are in order of partition, `first_seq`, path.
"""
