"""The Arrow schemas of exported run histories: of streams by run, segment and rules, of tables by run, file, limit."""

from __future__ import annotations

import pyarrow as pa

_INSTANT = pa.timestamp("ns", "UTC")

SEQ_RANGE = pa.struct(
    [
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
    ]
)
"""A range of sequences, both ends inclusive."""

EXPORTED_RUN = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("run", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("began", _INSTANT, nullable=False),
        pa.field("as_of", _INSTANT),
        pa.field("plan_id", pa.string()),
        pa.field("user", pa.string()),
        pa.field("host", pa.string()),
        pa.field("process", pa.int64()),
        pa.field("program", pa.string()),
        pa.field("scheduler", pa.string()),
        pa.field("reasons", pa.list_(pa.string()), nullable=False),
        pa.field("removed_messages", pa.int64(), nullable=False),
        pa.field("removed_bytes", pa.int64(), nullable=False),
        pa.field("restored_messages", pa.int64(), nullable=False),
        pa.field("restored_bytes", pa.int64(), nullable=False),
        pa.field("deleted_files", pa.int64(), nullable=False),
        pa.field("deleted_file_bytes", pa.int64(), nullable=False),
        pa.field("undoes", pa.string()),
        pa.field("undone_by", pa.string()),
        pa.field("undone", _INSTANT),
        pa.field("reclaimed_by", pa.string()),
        pa.field("reclaimed", _INSTANT),
        pa.field("archive", pa.string()),
        pa.field("evidence", pa.string()),
    ]
)
"""A run.

`kind` is the run history's, a repair's with its name; `status` is `done`, `abandoned` (it changed nothing), `unknown`
(it is unclear whether it committed), or `unfinished` (it has no outcome yet). `began` is the instant in its name,
`as_of` the one at which rules were applied. `scheduler` are a scheduler's names for it, as a JSON object. `reasons` are
its rules with the numbers of that time, or the request. `deleted_files` are data files that a reclaim deleted.

`undone_by` is the run that restored its messages, `reclaimed_by` the reclaim after which it cannot be undone;
`undone` and `reclaimed` are their instants. `archive` is the manifest of copies in the archive.

`evidence` tells what is known of its messages: `messages` (which), `files` (an earlier version of this program recorded
which files, and not which messages), `deleted` (it took some, and nothing tells which any more), `none` (it took none);
null of one that is unfinished.
"""

EXPORTED_LOSS = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("segment", pa.int64()),
        pa.field("files", pa.int64()),
        pa.field("messages", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("rules", pa.list_(pa.string())),
        pa.field("rule_messages", pa.list_(pa.int64())),
        pa.field("ranges", pa.list_(SEQ_RANGE)),
    ]
)
"""Messages that a run removed from one segment by the same rules, or by one of them.

`files` counts the files that held them, `bytes` is by the broker's accounting, null if they were not counted.
`rule_messages` are the messages that each rule removes. `ranges` are ascending and disjoint; where they have more
sequences than `messages`, the others had no message any more. `rules` and `ranges` are null where the evidence is of
files. A segment with very many ranges takes several rows, which add up.
"""

HISTORY_EXPORT = pa.schema([*EXPORTED_RUN, *EXPORTED_LOSS])
"""A run and one of its losses; a run without losses, or with unknown ones, is one row without a loss."""

_OF_TABLES = {
    "stream": "table",
    "removed_messages": "removed_rows",
    "restored_messages": "restored_rows",
}
_OF_STREAMS = {"restored_bytes", "reclaimed_by", "reclaimed", "archive"}

EXPORTED_TABLE_RUN = pa.schema(
    [
        field.with_name(_OF_TABLES.get(field.name, field.name))
        for field in EXPORTED_RUN
        if field.name not in _OF_STREAMS
    ]
)
"""A run on a table, with the columns of `EXPORTED_RUN` that it has.

`reasons` are its limits with the numbers of that time, those of policies included.

`evidence` tells what is recorded of its rows: `keys` or `hashed` (their keys and times, as configured), `files` (which
files lost how many rows), `none` (it removed none); null of one that is unfinished.
"""

EXPORTED_TABLE_LOSS = pa.schema(
    [
        pa.field("file", pa.string()),
        pa.field("file_bytes", pa.int64()),
        pa.field("action", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("rows", pa.int64()),
        pa.field("time_min", pa.string()),
        pa.field("time_max", pa.string()),
        pa.field("keys", pa.int64()),
    ]
)
"""Rows that a limit removed from one file.

`file` is the path from the table's location on, `action` is `dropped`, `rewritten` or `deletion vector`. `rows` is null
if neither evidence nor log has their number. `time_min` and `time_max` are bounds of their times as the column has
them, those of the log for a file that went unread. `keys` is the number of distinct keys, null for such a file.
"""

TABLE_HISTORY_EXPORT = pa.schema([*EXPORTED_TABLE_RUN, *EXPORTED_TABLE_LOSS])
"""A run on a table and one of its losses; a run without losses is one row without a loss."""
