"""Description of files of other writers by tasks: each learns and keeps the statistics of some files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from retention.core.inventory import DataFile, ReadCount
from retention.datafile.expected_stats import EXPECTED_COLUMNS, expected_stats_of
from retention.engine_port import Run
from retention.stores.checks import inventory
from retention.stores.layout import Layout, check_inside, check_lengths, identities
from retention.stores.sidecar.stats_cache import StatisticsCache
from schemas.files import FILE_STATS, LOGGED_FILES

PART_FILES = 1_000
"""Files that are described together: what is learned of them is kept at once, in one file."""
FILE_BYTES = 16 << 10
"""The cost of opening a file, in bytes that could be read meanwhile."""


@dataclass(frozen=True)
class DescribeTask:
    """Files that no log describes, and where what is learned of them is kept."""

    layout: Layout
    packed: pa.Buffer
    """Rows of `LOGGED_FILES`, with such statistics as the log has, as an Arrow stream: a table cut out of another one
    would take all of that along."""
    weight: int
    """Bytes of the files, and `FILE_BYTES` for each."""
    clock_ns: int
    """The clock, nanoseconds since the epoch, by which kept statistics are in order of age."""


def describe_missing(
    layout: Layout, cache: StatisticsCache, missing: pa.Table, run: Run, clock_ns: int
) -> tuple[pa.Table, ReadCount]:
    """Learn the statistics of live files that neither log nor cache describe.

    What goes through this process are counts, task by task; the statistics come from the cache, where tasks keep them.

    Args:
        layout: the stream's.
        cache: where statistics are kept.
        missing: rows of `LOGGED_FILES`, with such statistics as the log has.
        run: runs the tasks.
        clock_ns: the clock, nanoseconds since the epoch.

    Returns:
        Their statistics, shape `FILE_STATS`, and what reading them cost.

    Raises:
        ForeignRowsError, DamagedError: as `describe_files`.
    """
    tasks = describe_tasks(layout, missing, clock_ns)
    learned: Sequence[Described] = run(describe_files, tasks, [task.weight for task in tasks])
    kept, _ = cache.match(missing) if tasks else (FILE_STATS.empty_table(), missing)
    rows = pa.concat_tables([kept, *(some.rows for some in learned)])
    return rows, sum((some.read for some in learned), ReadCount())


def describe_tasks(layout: Layout, logged: pa.Table, clock_ns: int) -> list[DescribeTask]:
    """Share out files (`LOGGED_FILES`, with such statistics as the log has) among tasks."""
    names = [*LOGGED_FILES.names, *(n for n in EXPECTED_COLUMNS if n in logged.column_names)]
    return [
        DescribeTask(layout, _packed(some), _weight(some), clock_ns)
        for some in in_parts(logged.select(names))
    ]


@dataclass(frozen=True)
class Described:
    """The outcome of a task."""

    read: ReadCount
    rows: pa.Table
    """The statistics, shape `FILE_STATS`, where they cannot be kept beside the table; else none."""


def describe_files(task: DescribeTask) -> Described:
    """Read the narrow columns of a task's files, and keep their statistics beside the table.

    Raises:
        ForeignRowsError: rows of other writers break the storage rules.
        DamagedError: a file is missing, was changed, or cannot be read.
    """
    with pa.ipc.open_stream(task.packed) as source:
        logged = source.read_all()
    rows, read = inventory.describe_live(task.layout, live_files(task.layout, logged), logged)
    is_kept = StatisticsCache(task.layout, lambda: task.clock_ns).add(rows)
    # Even an empty part of a table, pickled, takes all of it along.
    return Described(read, FILE_STATS.empty_table() if is_kept else rows)


def live_files(layout: Layout, logged: pa.Table) -> list[DataFile]:
    """The live files of a Delta table, at their places.

    Raises:
        DamagedError: a file is missing, or was changed after it was committed.
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


def _packed(files: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, files.schema) as stream:
        stream.write_table(files)
    return sink.getvalue()
