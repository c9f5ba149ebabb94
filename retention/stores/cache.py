"""The statistics cache: what is known about data files that no log describes completely."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention import files
from retention.steps import Step, reached
from retention.stores.layout import Layout
from schemas.files import FILE_STATS, LOGGED_FILES

MERGE_ABOVE = 64
_KEEP_MS = 86_400_000
_KEY = ["partition", "segment", "file_bytes", "modified_ms"]
_LEARNED = [name for name in FILE_STATS.names if name not in LOGGED_FILES.names]


class StatisticsCache:
    """Rows of `FILE_STATS`, keyed by path, length and modification time; losing them costs time."""

    def __init__(self, layout: Layout, clock: Callable[[], int]) -> None:
        self._directory = layout.own("stats")
        self._clock = clock

    def add(self, rows: pa.Table) -> None:
        """Remember statistics of files, before or after a commit names them."""
        with files.if_writable():
            self._write(rows)

    def _write(self, rows: pa.Table) -> None:
        if rows.num_rows:
            name = f"{self._clock():020d}-{uuid.uuid4().hex[:8]}.parquet"
            with files.create(files.join(self._directory, name)) as sink:
                # Paths are all different: a dictionary of them only costs.
                pq.write_table(
                    rows.select(FILE_STATS.names).cast(FILE_STATS), sink, use_dictionary=False
                )
            reached(Step.STATS_CACHED)

    def match(self, live: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Statistics of the files in `live` that are known, and the rows of `live` that are not.

        The first is of shape `FILE_STATS`.
        """
        known = self._load()[1]
        at = pc.index_in(live["path"], value_set=known["path"])
        hit = pc.is_valid(at)
        for name in _KEY:
            hit = pc.and_(hit, pc.equal(known[name].take(at), live[name]))
        hit = pc.fill_null(hit, fill_value=False)
        if pc.all(hit, min_count=0).as_py():
            return _completed(live, known, at), live.slice(0, 0)
        return _completed(live.filter(hit), known, at.filter(hit)), live.filter(pc.invert(hit))

    def tidy(self, live: pa.Table) -> None:
        """Put many small files into one.

        Args:
            live: shape `FILE_STATS`; kept, as are rows so young that a commit under way may name them.
        """
        names = files.names(self._directory)
        if len(names) <= MERGE_ABOVE:
            return
        names, known = self._load()
        young = pc.greater(known["modified_ms"], self._clock() // 1_000_000 - _KEEP_MS)
        alive = pc.is_in(known["path"], value_set=live["path"])
        with files.if_writable():
            self._write(pa.concat_tables([live, known.filter(pc.and_not(young, alive))]))
            files.delete(files.join(self._directory, name) for name in names)
        reached(Step.STATS_MERGED)

    def _load(self) -> tuple[list[str], pa.Table]:
        """Names of the cache's files, and their rows, the newest first."""
        while True:
            names = files.names(self._directory)
            tables = [self._read(name) for name in reversed(names)]
            # A file that vanished was merged into another one by a rival: look again.
            if None not in tables or names == files.names(self._directory):
                break
        whole = [table for table in tables if table is not None]
        return names, pa.concat_tables(whole) if whole else FILE_STATS.empty_table()

    def _read(self, name: str) -> pa.Table | None:
        try:
            with files.open_input(files.join(self._directory, name)) as source:
                return pq.ParquetFile(source).read(FILE_STATS.names).cast(FILE_STATS)
        except (OSError, KeyError, pa.ArrowException):
            # Whatever cannot be read is learned again from the data files.
            return None


def _completed(identified: pa.Table, known: pa.Table, at: pa.ChunkedArray) -> pa.Table:
    """Files as the log identifies them, with what row `at` of `known` has learned of each; shape `FILE_STATS`."""
    learned = [known[name].take(at) for name in _LEARNED]
    return pa.table([*identified.select(LOGGED_FILES.names).columns, *learned], schema=FILE_STATS)
