"""Tasks that describe files of other writers; each reads and caches the statistics of some files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from retention.core.inventory import DataFile
from retention.core.read_count import ReadCount
from retention.datafile.expected_stats import EXPECTED_COLUMNS, expected_stats_of
from retention.engine_port import Run
from retention.schemas.empty import empty_table
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage.tables import decode_stream, encode_stream
from retention.stores.checks import inventory
from retention.stores.file_paths import check_inside
from retention.stores.layout import Layout, check_lengths, identities
from retention.stores.sidecar.stats_cache import StatisticsCache

PART_FILES = 1_000
"""The number of files of one task; their statistics are cached together, in one file."""
FILE_BYTES = 16 << 10
"""The cost of opening a file, as bytes that could be read in the same time."""


@dataclass(frozen=True)
class DescribeTask:
    """Files without statistics in the log, and the layout in which their statistics are cached."""

    layout: Layout
    packed: bytes
    """Rows of `LOGGED_FILES` with any statistics in the log, as an Arrow stream; pickling a slice would include its
    whole table."""
    weight: int
    """Total bytes of the files, plus `FILE_BYTES` for each."""
    clock_ns: int
    """The clock, nanoseconds since the epoch; orders cached statistics by age."""


def describe_missing(
    layout: Layout, cache: StatisticsCache, missing: pa.Table, run: Run, clock_ns: int
) -> tuple[pa.Table, ReadCount]:
    """Read the statistics of live files that neither the log nor the cache describes.

    Each task returns only counts to this process; the statistics come from the cache, where tasks write them.

    Args:
        layout: the stream's layout.
        cache: the cache of statistics.
        missing: rows of `LOGGED_FILES`, with any statistics in the log.
        run: runs the tasks.
        clock_ns: the clock, nanoseconds since the epoch.

    Returns:
        Their statistics, shape `FILE_STATS`, and the cost of reading them.

    Raises:
        ForeignRowsError, DamagedError: as `describe_files`.
    """
    if not missing.num_rows:
        return empty_table(FILE_STATS), ReadCount()
    tasks = describe_tasks(layout, missing, clock_ns)
    learned: Sequence[Described] = run(describe_files, tasks, [task.weight for task in tasks])
    kept, _ = cache.match(missing)
    rows = pa.concat_tables([kept, *(some.rows for some in learned)])
    return rows, sum((some.read for some in learned), ReadCount())


def describe_tasks(layout: Layout, logged: pa.Table, clock_ns: int) -> list[DescribeTask]:
    """Divide files (`LOGGED_FILES`, with any statistics in the log) among tasks."""
    names = [*LOGGED_FILES.names, *(n for n in EXPECTED_COLUMNS if n in logged.schema.names)]
    return [
        DescribeTask(layout, encode_stream(some), _weight(some), clock_ns)
        for some in in_parts(logged.select(names))
    ]


@dataclass(frozen=True)
class Described:
    """The outcome of a task."""

    read: ReadCount
    rows: pa.Table
    """The statistics, shape `FILE_STATS`, if they could not be cached beside the table; otherwise empty."""


def describe_files(task: DescribeTask) -> Described:
    """Read the narrow columns of a task's files, and cache their statistics beside the table.

    Raises:
        ForeignRowsError: rows of other writers break the storage rules.
        DamagedError: a file is missing, was changed, or cannot be read.
    """
    logged = decode_stream(task.packed)
    rows, read = inventory.describe_live(task.layout, live_files(task.layout, logged), logged)
    is_kept = StatisticsCache(task.layout, lambda: task.clock_ns).add(rows)
    # Pickling even an empty slice of a table would include the whole table.
    return Described(read, empty_table(FILE_STATS) if is_kept else rows)


def live_files(layout: Layout, logged: pa.Table) -> list[DataFile]:
    """The live files of a Delta table, at their locations.

    Raises:
        DamagedError: a file is missing, or was changed after its commit.
    """
    check_inside(layout, logged["path"])
    rows = zip(identities(logged), expected_stats_of(logged), strict=True)
    live = [replace(layout.data_file(row, layout.live(row[0])), claim=claim) for row, claim in rows]
    check_lengths(layout, logged, live)
    return live


def in_parts(files: pa.Table) -> Iterator[pa.Table]:
    """Tables of `PART_FILES` rows each."""
    for begin in range(0, files.num_rows, PART_FILES):
        yield files.slice(begin, PART_FILES)


def _weight(files: pa.Table) -> int:
    return sum(files["file_bytes"].to_pylist()) + files.num_rows * FILE_BYTES
