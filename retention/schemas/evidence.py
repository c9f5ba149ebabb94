"""The Arrow schema of evidence: messages removed by runs, kept after `reclaim` has deleted the files."""

from __future__ import annotations

import pyarrow as pa

from retention.schemas.runs import RUN_RANGES

EVIDENCE = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        *[
            field.with_nullable(nullable=True) if field.name == "rules" else field
            for field in RUN_RANGES
        ],
        pa.field("reclaimed_ns", pa.int64(), nullable=False),
        pa.field("reclaim_run", pa.string()),
    ]
)
"""A row of `RUN_RANGES` of a run, which a reclaim has folded.

`reclaimed_ns` is the instant after which the run could not be undone any more, nanoseconds since the epoch, and
`reclaim_run` the reclaim that deleted the run's last files; null if they were deleted before.

`rules` is null where an earlier version of this program recorded only the files that a run removed and wrote, not the
messages: `messages` and `bytes` of a removed file are all of its own, and those of a file that the run wrote are
negative, so that their sum over a segment is the run's removal from it.
"""
