"""The Arrow schema of what a run removes, sequence by sequence, kept beside the stream with the run's other records."""

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
"""A range of sequences that a run takes of one file: every message that the file holds from `first_seq` to `last_seq`,
both inclusive, except those in the ranges of `except_firsts` and `except_lasts` (ascending, disjoint, both ends
inclusive), which had gone before or stand in rows of their own.

`messages` and `bytes` (by the broker's accounting, null where nobody counted them) are what goes. `rules` are the names
of the rules that take it and `counts` the messages that each takes: one rule mostly; several where statistics decided
how many messages each takes of a file, and no row was asked which; none where a repair took them, by no rule. `segment`
is the file's at the time. Rows are in order of partition, `first_seq`, path.
"""
