"""The statistics cache, for data files with incomplete statistics in the log."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import rows_of
from retention.core.row_numbers import rows_at
from retention.datafile.expected_stats import EXPECTED_COLUMNS
from retention.schemas.empty import empty_table
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.sidecar import Codec, Sidecar
from retention.storage.table_codecs import ArrowCodec, ParquetCodec
from retention.storage.tables import in_shape
from retention.stores.layout import Layout

MERGE_ABOVE = 16
_KEEP_MS = 86_400_000
_SMALL_ROWS = 4_096
_SMALL = ".arrow"
_KEY = ["partition", "segment", "file_bytes", "modified_ms"]
_LEARNED = [name for name in FILE_STATS.names if name not in LOGGED_FILES.names]
_COMPARED = [*_KEY, *_LEARNED]


class StatisticsCache:
    """Rows of `FILE_STATS`, keyed by path, length and modification time; losing them costs only time.

    Each file of the cache is written once and read at most once per process. When there are many, the newest are merged
    into one, together with every older one that is no larger than all after it. So sizes at least double from file to
    file, and a row is rewritten a logarithmic number of times.
    """

    def __init__(self, layout: Layout, clock: Callable[[], int]) -> None:
        self._directory = layout.engine_path("stats")
        self._clock = clock
        self._known: dict[str, pa.Table] = {}

    def add(self, rows: pa.Table) -> bool:
        """Add statistics of files, before or after a commit names them; returns whether the storage was writable.

        They are not fsynced: after a power failure, the newest may be read from the data files again.
        """
        is_kept = False
        with files.if_writable():
            if rows.num_rows:
                self._write(rows, self._clock(), Sidecar.write_unsynced)
            is_kept = True
        return is_kept  # noqa: RET504  (the block may end before its end)

    def match(self, live: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Cached statistics of the files in `live`, and the rows of `live` without any.

        The first has shape `FILE_STATS`. Statistics in `live` beyond `LOGGED_FILES` must equal the cached ones.
        """
        tables, left = list[pa.Table](), live
        for known in self._newest_first(live.num_rows):
            some, left = _split_known(left, known)
            tables.append(some)
            if not left.num_rows:
                break
        return pa.concat_tables(tables) if tables else empty_table(FILE_STATS), left

    def tidy(self, live: Callable[[], pa.Table]) -> None:
        """Merge many small files into one.

        Args:
            live: called only when all files are merged, returns shape `FILE_STATS`; then only its rows are kept, and
                rows so young that a commit in progress may name them.
        """
        names = self._names()
        if len(names) <= MERGE_ABOVE:
            return
        merged = _run_to_merge(names)
        rows = self._rows_of(merged)
        if merged == names:
            rows = self._alive_or_young(rows, live())
        self._replace(merged, rows)

    def merge(self) -> None:
        """Merge many small files into one, with the rows of dead files, too: only others' commits make any."""
        names = self._names()
        if len(names) > MERGE_ABOVE:
            merged = _run_to_merge(names)
            self._replace(merged, self._rows_of(merged))

    def gather(self, live: pa.Table) -> None:
        """Merge everything into one file if at most half of the rows describe live files; dead rows pay the cost.

        Args:
            live: the newest version's files, shape `LOGGED_FILES`.
        """
        names = self._names()
        if sum(map(_rows_in, names)) < 2 * max(live.num_rows, 1):
            return
        known, _ = self.match(live)
        rows = self._alive_or_young(self._rows_of(names), known)
        if len(names) > 1 or rows.num_rows < sum(map(_rows_in, names)):
            self._replace(names, rows)

    def _rows_of(self, names: Sequence[str]) -> pa.Table:
        """The rows of several files, newest first."""
        tables = [table for name in reversed(names) if (table := self._read(name)) is not None]
        return pa.concat_tables([empty_table(FILE_STATS), *tables])

    def _replace(self, names: Sequence[str], rows: pa.Table) -> None:
        """Replace several files with one, as old as the newest of them, so that a rival's additions remain newer.

        It is fsynced, because it may have the statistics of very many files.
        """
        with files.if_writable():
            self._write(rows, _clock_of(names[-1]), Sidecar.write)
            files.delete(files.join(self._directory, name) for name in names)
        for name in names:
            self._known.pop(name, None)
        reached(Step.STATS_MERGED)

    def _alive_or_young(self, rows: pa.Table, live: pa.Table) -> pa.Table:
        young = pc.greater(rows["modified_ms"], self._clock() // 1_000_000 - _KEEP_MS)
        alive = pc.is_in(rows["path"], value_set=live["path"])
        return pa.concat_tables([live, rows.filter(pc.and_not(young, alive))])

    def _newest_first(self, count: int) -> Iterator[pa.Table]:
        """The cache's rows, newest first, in tables of at least `count` rows except the last one.

        If a rival merges files meanwhile, the merged file is read, too.
        """
        read: set[str] = set()
        while count and (unread := [name for name in self._names() if name not in read]):
            gathered: list[pa.Table] = []
            while unread and sum(table.num_rows for table in gathered) < count:
                name = unread.pop()
                read.add(name)
                table = self._read(name)
                gathered += [] if table is None else [table]
            if gathered:
                yield pa.concat_tables(gathered)

    def _names(self) -> list[str]:
        """The cache's files, oldest first; evicts files from memory that a rival merged."""
        names = files.names(self._directory)
        self._known = {name: self._known[name] for name in names if name in self._known}
        return names

    def _write(
        self, rows: pa.Table, clock: int, write: Callable[[Sidecar[pa.Table], pa.Table], None]
    ) -> None:
        # Merged rows come in a chunk for each commit, and a chunk takes more memory than its row.
        rows = _in_shape(rows).combine_chunks()
        suffix = _SMALL if rows.num_rows <= _SMALL_ROWS else ".parquet"
        name = f"{clock:020d}-{uuid.uuid4().hex[:8]}-{rows.num_rows}{suffix}"
        write(self._part(name), rows)
        self._remember(name, rows)

    def _read(self, name: str) -> pa.Table | None:
        if name in self._known:
            return self._known[name]
        rows = self._part(name).load()
        if rows is not None:
            self._remember(name, rows)
        return rows

    def _part(self, name: str) -> Sidecar[pa.Table]:
        """One file of the cache; doubtful statistics are read again from the data files."""
        place = files.join(self._directory, name)
        return Sidecar(place, _codec_of(name), Step.STATS_CACHED)

    def _remember(self, name: str, rows: pa.Table) -> None:
        """Keep a small file's rows in memory: files are immutable, and each of the many small ones costs a request."""
        if rows.num_rows <= _SMALL_ROWS:
            self._known[name] = rows


def _codec_of(name: str) -> Codec[pa.Table]:
    """Arrow for a small file, where Parquet takes ten times as long; Parquet for a large one, of half the bytes."""
    if name.endswith(_SMALL):
        return ArrowCodec(lambda rows: rows, lambda _, rows: _in_shape(rows))
    return ParquetCodec(FILE_STATS)


def _in_shape(rows: pa.Table) -> pa.Table:
    return in_shape(rows.select(FILE_STATS.names), FILE_STATS)


def _run_to_merge(names: Sequence[str]) -> list[str]:
    """The newest half of the files, and every older one that is no larger than all after it.

    For 900, 30, 20, 10 and 10 rows, oldest first: the half is 20, 10, 10; 30 joins these 40; 900 is more than 70.
    """
    at = len(names) // 2
    total = sum(_rows_in(name) for name in names[at:])
    while at and _rows_in(names[at - 1]) <= total:
        at -= 1
        total += _rows_in(names[at])
    return list(names[at:])


def _rows_in(name: str) -> int:
    digits = name.partition(".")[0].rpartition("-")[2]
    return int(digits) if digits.isdigit() else 1


def _clock_of(name: str) -> int:
    digits = name.partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _split_known(live: pa.Table, known: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The statistics in `known` for files in `live`, and the rows of `live` without any."""
    at = rows_of(live["path"], known["path"])
    paired, hit = _at(known.select(_COMPARED), at), pa.array(at >= 0)
    # Equal columns need no comparison by rows.
    logged = live.schema.names
    both = [name for name in (*_KEY, *EXPECTED_COLUMNS) if name in logged]
    differing = [name for name in both if not live[name].equals(paired[name])]
    if not differing and not hit.false_count:
        return _completed(live, paired), live.slice(0, 0)
    for name in differing:
        same = pc.equal(paired[name], live[name])
        # If the log differs, the file itself is read.
        hit = pc.and_(hit, same if name in _KEY else pc.or_kleene(pc.is_null(live[name]), same))
    hit = pc.fill_null(hit, fill_value=False)
    if pc.all(hit, min_count=0).as_py():
        return _completed(live, paired), live.slice(0, 0)
    return _completed(live.filter(hit), paired.filter(hit)), live.filter(pc.invert(hit))


def _at(known: pa.Table, at: np.ndarray) -> pa.Table:
    """Rows by their numbers, -1 for none; logs and caches mostly have files in one order, so that they are a view."""
    if (np.diff(at, prepend=-1) > 0).all():
        return rows_at(known, at)
    return known.take(pa.array(at, mask=at < 0))


def _completed(identified: pa.Table, paired: pa.Table) -> pa.Table:
    """Logged files with the statistics in the same rows of another table; shape `FILE_STATS`."""
    columns = [*(identified[name] for name in LOGGED_FILES.names), *map(paired.column, _LEARNED)]
    return pa.Table.from_arrays(columns, schema=FILE_STATS)
