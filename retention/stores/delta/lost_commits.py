"""Lost commits: the entry that a token preserved, and its files that still exist."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from retention.engine_port import run_here
from retention.errors import DamagedError
from retention.ports import LostCommit
from retention.storage import files
from retention.stores.delta import counters, internals
from retention.stores.delta.commit_tokens import LostEntry
from retention.stores.delta.log import metadata_of
from retention.stores.delta.log_diff import logged_rows
from retention.stores.delta.vector_files import named_path
from retention.stores.describing import describe_missing
from retention.stores.layout import Layout
from retention.stores.sidecar.stats_cache import StatisticsCache


def lost_commit(
    layout: Layout, cache: StatisticsCache, lost: LostEntry, epoch: int, now_ns: int
) -> LostCommit:
    """Parse a lost entry, and find its files that still exist.

    Args:
        layout: the stream's layout.
        cache: statistics of files; the commit's own were added before it was made.
        lost: the entry.
        epoch: the table's current epoch.
        now_ns: the clock, nanoseconds since the epoch.

    Raises:
        DamagedError: the token cannot be read, or a file differs from the committed one.
    """
    try:
        acts = list(internals.file_actions(lost.entry))
        logged = logged_rows(fields for kind, fields in acts if kind == "add")
        transactions = internals.transactions(lost.entry)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"stream {layout.stream}: the token of version {lost.version} cannot be read ({error!r}), so that what was "
            "committed there cannot be committed again; nothing was changed; publish or run again what is missing, "
            f"and delete {layout.engine_path('commits', f'{lost.version:020d}.json')}"
        ) from error
    lengths = files.lengths([layout.live(path) for path in logged["path"].to_pylist()])
    is_there = pc.equal(pa.array(lengths, pa.int64()), logged["file_bytes"])
    is_there = pc.fill_null(is_there, fill_value=False)
    there = logged.filter(is_there)
    known, unknown = cache.match(there)
    described, _ = describe_missing(layout, cache, unknown, run_here, now_ns)
    return LostCommit(
        version=lost.version,
        program=lost.program,
        token=lost.token,
        metadata=metadata_of(lost.entry),
        removed=tuple(named_path(fields) for kind, fields in acts if kind == "remove"),
        added=pa.concat_tables([known, described]),
        missing=tuple(logged.filter(pc.invert(is_there))["path"].to_pylist()),
        new=frozenset(
            named_path(fields) for kind, fields in acts if kind == "add" and fields["dataChange"]
        ),
        counters=counters.by_name(transactions, epoch),
        data_change=any(fields["dataChange"] for _, fields in acts),
    )
