"""The part of a data file's statistics that its narrow columns determine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.schemas.deadlines import NEVER
from retention.schemas.files import RowSizes, RowStats


def row_stats(rows: pa.Table) -> RowStats:
    """The fields of `FILE_STATS` that rows determine.

    Args:
        rows: the narrow columns (`RULE_COLUMNS`) of one row or more, ascending by `seq`.
    """
    times = rows["ts_ns"].to_numpy()
    never = pc.equal(rows["deadline_ns"], NEVER)
    with_deadline = pc.fill_null(pc.not_equal(rows["deadline_ns"], NEVER), fill_value=False)
    dated = rows["deadline_ns"].filter(with_deadline)
    bounds = pc.min_max(dated)
    return {
        **seq_and_size_stats(rows),
        "min_ts_ns": int(times.min()),
        "max_ts_ns": int(times.max()),
        "first_ts_ns": int(times[0]),
        "last_ts_ns": int(times[-1]),
        "never": pc.sum(never, min_count=0).as_py(),
        "deadlines": len(dated),
        "min_deadline_ns": bounds["min"].as_py(),
        "max_deadline_ns": bounds["max"].as_py(),
        "markers": pc.sum(rows["marker"], min_count=0).as_py(),
        "in_time_order": bool(np.all(times[1:] >= times[:-1])),
    }


def seq_and_size_stats(rows: pa.Table) -> RowSizes:
    """The fields of `FILE_STATS` that `seq` and `size` determine, for one row or more, ascending by `seq`."""
    seqs = rows["seq"].to_numpy()
    return {
        "messages": rows.num_rows,
        "bytes": pc.sum(rows["size"]).as_py(),
        "min_seq": int(seqs[0]),
        "max_seq": int(seqs[-1]),
    }
