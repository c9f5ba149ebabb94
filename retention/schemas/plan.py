"""The Arrow schemas of a plan: files that it touches, sequences that rewrites leave out, markers that it writes."""

from __future__ import annotations

import pyarrow as pa

from retention.schemas.files import FILE_STATS, LOGGED_FILES

PLANNED_FILES = pa.schema(
    [
        *FILE_STATS,
        pa.field("action", pa.string(), nullable=False),
        pa.field("removed_messages", pa.int64(), nullable=False),
        pa.field("removed_bytes", pa.int64(), nullable=False),
    ]
)
"""A file that a plan touches: `action` is `drop` (it is removed whole) or `rewrite` (a copy without some rows
replaces it)."""

RULE = pa.dictionary(pa.int8(), pa.string())
"""A rule by its name, one of `RULE_NAMES`; in a saved plan it is a string."""
RULE_NUMBER = pa.int16()
"""A rule by its number: an index into `RULE_NAMES`, or a verdict beside a scan, which is the product of two."""

PLANNED_RULES = pa.schema(
    [
        pa.field("file", pa.int64(), nullable=False),
        pa.field("rule", RULE, nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64()),
    ]
)
"""The part of one rule in one file that a plan touches: `file` is a row number of the plan's files, ascending; the
messages of a file's rows add up to its `removed_messages`. `bytes` is null where several rules share the file."""

REMOVED_RANGES = pa.schema(
    [
        pa.field("file", pa.int64(), nullable=False),
        pa.field("rule", RULE_NUMBER, nullable=False),
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
"""A range to remove, from rows: `file` is a row number of the files in question, `rule` an index into `RULE_NAMES`;
both sequences are inclusive, and every sequence between them is a message that the rule removes."""

CAUSE_FILES = pa.schema(
    [
        *LOGGED_FILES,
        *[
            FILE_STATS.field(name)
            for name in (
                "messages",
                "bytes",
                "min_seq",
                "max_seq",
                "max_ts_ns",
                "first_ts_ns",
                "last_ts_ns",
            )
        ],
    ]
)
"""A file of the inventory that a plan was made from: its location, and the numbers that `explain` compares."""

SAVED_CAUSE = pa.schema(
    [
        *CAUSE_FILES,
        pa.field("remaining_messages", pa.int64()),
        pa.field("remaining_bytes", pa.int64()),
        pa.field("rules", pa.list_(pa.int8()), nullable=False),
        *[
            pa.field(name, pa.list_(pa.int64()), nullable=False)
            for name in ("first_seqs", "last_seqs", "counts", "sizes")
        ],
    ]
)
"""A row of `CAUSE_FILES` in a saved plan: with the part of the file that consumers release (null: all of it), and
ranges of sequences with a rule from rows (an index into `RULE_NAMES`), ascending, both ends inclusive, with messages
and bytes."""

PLANNED_PARTS = REMOVED_RANGES.set(1, pa.field("rule", RULE, nullable=False))
"""A removed part of a file that is not removed whole: as `REMOVED_RANGES`, its rule by name, `file` a row number of the
plan's files, ascending, then by `first_seq`."""

HELD_RANGES = pa.schema(
    [
        pa.field("consumer", pa.int16(), nullable=False),
        *list(REMOVED_RANGES)[1:],
        pa.field("oldest_ts_ns", pa.int64(), nullable=False),
    ]
)
"""A range that is kept although a rule would remove it: `consumer` numbers those that need it, -1 is any of them
(there each message is counted once); `oldest_ts_ns` is the least time of a message in the range, nanoseconds since the
epoch."""

PLANNED_MARKERS = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("replaces", pa.int64(), nullable=False),
    ]
)
"""A subject-delete marker that a plan writes, in order of `seq`: `replaces` is the sequence of the expired message,
the last of its subject."""
