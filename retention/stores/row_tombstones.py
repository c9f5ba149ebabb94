"""Row tombstones, for messages released and still in live files: numbered records, and files without those messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.file_records import check_file_records
from retention.core.inventory import DataFile, ExpectedStats
from retention.datafile.expected_stats import expected_stats_of
from retention.errors import DamagedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout
from schemas.files import FILE_STATS, LOGGED_FILES, TOMBSTONED_FILES

_DIGITS = 20
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class RowTombstones:
    """One record of row tombstones, applied to files."""

    number: int
    record: pa.Table
    """The record, shape `TOMBSTONED_FILES`; it may name files that are not live any more."""

    def hide(self, file: DataFile) -> DataFile:
        """A file as it is to be read: without its released messages, and held against statistics without them."""
        entry = self._by_path.get(file.path)
        return file if entry is None else replace(file, hidden=entry[0], claim=entry[1])

    def left(self, table: pa.Table) -> pa.Table:
        """Statistics of files (`FILE_STATS`), not counting released messages; in no particular order."""
        tombstoned = self._of(table)
        others = pc.invert(pc.is_in(table["path"], value_set=tombstoned["path"].combine_chunks()))
        return pa.concat_tables([table.filter(others), tombstoned.select(FILE_STATS.names)])

    def stored(self, table: pa.Table) -> pa.Table:
        """Statistics of files (`FILE_STATS`), also counting released messages; in the same order."""
        at = pc.index_in(table["path"], value_set=self.record["path"].combine_chunks())
        if at.null_count == len(at):
            return table
        stored = self.record.take(at)
        is_ours = pc.is_valid(at)
        columns = [
            table[field.name]
            if field.name in LOGGED_FILES.names
            else pc.if_else(is_ours, stored[f"stored_{field.name}"], table[field.name])
            for field in table.schema
        ]
        return pa.table(columns, schema=table.schema)

    def hidden_bytes(self, table: pa.Table) -> dict[str, int]:
        """Path of a live file → bytes, by the broker's accounting, of released messages that are still in it."""
        tombstoned = self._of(table)
        lost = pc.subtract(tombstoned["stored_bytes"], tombstoned["bytes"])
        return dict(zip(tombstoned["path"].to_pylist(), lost.to_pylist(), strict=True))

    def _of(self, table: pa.Table) -> pa.Table:
        live = table["path"].combine_chunks()
        return self.record.filter(pc.is_in(self.record["path"], value_set=live))

    @cached_property
    def _by_path(self) -> dict[str, tuple[np.ndarray, ExpectedStats]]:
        paths, claims = self.record["path"].to_pylist(), expected_stats_of(self.record)
        return dict(zip(paths, zip(ranges_of(self.record), claims, strict=True), strict=True))


def no_row_tombstones() -> RowTombstones:
    """The empty record, of a stream in which nothing is hidden."""
    return RowTombstones(0, TOMBSTONED_FILES.empty_table())


class RowTombstoneRecords:
    """Reads and writes `_retention/released/`: numbered records, each created if absent."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._directory = layout.engine_path("released")

    def any(self) -> bool:
        """Whether there is a record, be it one that no commit names."""
        return bool(files.names(self._directory))

    def read(self, number: int) -> pa.Table:
        """One record, shape `TOMBSTONED_FILES`; 0 is the empty one.

        Raises:
            DamagedError: the record is gone or cannot be read.
        """
        if not number:
            return no_row_tombstones().record
        place = self._place(number)
        try:
            with files.open_input(place) as source:
                table = pq.read_table(source, page_checksum_verification=True)
            check_file_records(table, TOMBSTONED_FILES)
            _refuse_uneven(table)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            raise DamagedError(
                f"{place}: the record of what is released in stream {self._layout.stream} cannot be read ({error}); "
                "nothing was changed; restore it from a copy"
            ) from error
        return table

    def written(self) -> dict[int, int]:
        """Number → when the storage wrote the record, nanoseconds since the epoch."""
        stems = {
            name.removesuffix(_SUFFIX): at_ms
            for name, at_ms in files.times(self._directory).items()
        }
        return {int(stem): at_ms * 1_000_000 for stem, at_ms in stems.items() if stem.isdigit()}

    def places(self, numbers: Iterable[int]) -> list[str]:
        """The locations of some records."""
        return [self._place(number) for number in numbers]

    def write(self, record: pa.Table) -> int:
        """Write a record under the next number that nobody has taken; return the number."""
        sink = pa.BufferOutputStream()
        pq.write_table(record, sink, compression="zstd", write_page_checksum=True)
        content = sink.getvalue().to_pybytes()
        taken = files.names(self._directory)
        number = int(taken[-1].removesuffix(_SUFFIX)) + 1 if taken else 1
        while not files.create_if_absent(self._place(number), content):
            number += 1
        reached(Step.RELEASED_KEPT)
        return number

    def _place(self, number: int) -> str:
        return files.join(self._directory, f"{number:0{_DIGITS}d}{_SUFFIX}")


def record_row(left: dict[str, Any], stored: dict[str, Any], ranges: np.ndarray) -> dict[str, Any]:
    """Make a row of `TOMBSTONED_FILES`.

    Args:
        left: the row of `FILE_STATS` of the file's remaining messages.
        stored: the row of `FILE_STATS` of all messages in the file.
        ranges: the released sequences, shape (n, 2): [[3, 5], [9, 9]] becomes `first_seqs` [3, 9], `last_seqs` [5, 9].
    """
    described = FILE_STATS.names[len(LOGGED_FILES) :]
    return {
        **left,
        **{f"stored_{name}": stored[name] for name in described},
        "first_seqs": ranges[:, 0].tolist(),
        "last_seqs": ranges[:, 1].tolist(),
    }


def _refuse_uneven(record: pa.Table) -> None:
    """Refuse ranges that are none, or not ascending."""
    for ends in zip(record["first_seqs"].to_pylist(), record["last_seqs"].to_pylist(), strict=True):
        if len(ends[0]) != len(ends[1]):
            raise ValueError("first_seqs and last_seqs are not as many")
        flat = [end for both in zip(*ends, strict=True) for end in both]
        if any(end is None for end in flat) or flat != sorted(flat) or (flat and flat[0] < 0):
            raise ValueError("first_seqs and last_seqs are no ascending ranges of sequences")


def ranges_of(record: pa.Table) -> list[np.ndarray]:
    """The released ranges of each file of a record, shape (n, 2)."""
    firsts, lasts = (record[name].combine_chunks() for name in ("first_seqs", "last_seqs"))
    return [
        np.stack([firsts[at].values.to_numpy(), lasts[at].values.to_numpy()], axis=1)
        for at in range(record.num_rows)
    ]
