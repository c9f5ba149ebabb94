"""Row tombstones for released messages still in live files: numbered records, and files read without those messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import NO_RANGES, DataFile, ExpectedStats, SeqRanges
from retention.datafile.expected_stats import expected_stats_of
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores import tombstone_files
from retention.stores.layout import Layout
from retention.stores.tombstone_files import RecordedRanges
from schemas.files import FILE_STATS, LOGGED_FILES, TOMBSTONED_FILES, TOMBSTONED_STATS

_DIGITS = 20
_SUFFIX = ".parquet"


@dataclass(frozen=True)
class RowTombstones:
    """One record of row tombstones, applied to files; few ranges stay in memory, many are read on demand."""

    number: int
    files: pa.Table
    """Every file of the record, shape `TOMBSTONED_STATS`; some may no longer be live."""
    read: Callable[[], Iterable[pa.Table]]
    """A reader of the record, some files at a time, in the order of `files`; shape `TOMBSTONED_FILES`."""
    place: str | None = None
    """The location of a record with many ranges; None if its ranges are in memory."""

    @classmethod
    def of(cls, number: int, record: pa.Table) -> RowTombstones:
        """A record in memory, from a table of shape `TOMBSTONED_FILES`."""
        return cls(number, record.select(TOMBSTONED_STATS.names), lambda: [record])

    def tables(self, wanted: np.ndarray) -> Iterator[pa.Table]:
        """The rows of the `files` in the mask `wanted`, some at a time; shape `TOMBSTONED_FILES`.

        Raises:
            DamagedError: the record is missing or cannot be read.
        """
        start = 0
        for table in self.read() if wanted.any() else ():
            yield table.filter(pa.array(wanted[start : start + table.num_rows]))
            start += table.num_rows

    def ranges_of(self, path: str) -> np.ndarray | SeqRanges:
        """The released ranges of a file, or their location; none for a file outside the record."""
        at = self._row_of.get(path)
        if at is None:
            return NO_RANGES
        return self._held[at] if self.place is None else RecordedRanges(self.place, at)

    def hide(self, file: DataFile) -> DataFile:
        """A file without its released messages, to be checked against statistics without them."""
        at = self._row_of.get(file.path)
        if at is None:
            return file
        return replace(file, hidden=self.ranges_of(file.path), claim=self._claims[at])

    def left(self, table: pa.Table) -> pa.Table:
        """Statistics of files (`FILE_STATS`) without released messages, in no particular order."""
        tombstoned = self._of(table)
        others = pc.invert(pc.is_in(table["path"], value_set=tombstoned["path"].combine_chunks()))
        return pa.concat_tables([table.filter(others), tombstoned.select(FILE_STATS.names)])

    def stored(self, table: pa.Table) -> pa.Table:
        """Statistics of files (`FILE_STATS`) with released messages, in the same order."""
        at = pc.index_in(table["path"], value_set=self.files["path"].combine_chunks())
        if at.null_count == len(at):
            return table
        stored = self.files.take(at)
        is_ours = pc.is_valid(at)
        columns = [
            table[field.name]
            if field.name in LOGGED_FILES.names
            else pc.if_else(is_ours, stored[f"stored_{field.name}"], table[field.name])
            for field in table.schema
        ]
        return pa.table(columns, schema=table.schema)

    def hidden_bytes(self, table: pa.Table) -> dict[str, int]:
        """Path of a live file → bytes of the released messages still in it, by the broker's accounting."""
        tombstoned = self._of(table)
        lost = pc.subtract(tombstoned["stored_bytes"], tombstoned["bytes"])
        return dict(zip(tombstoned["path"].to_pylist(), lost.to_pylist(), strict=True))

    def _of(self, table: pa.Table) -> pa.Table:
        live = table["path"].combine_chunks()
        return self.files.filter(pc.is_in(self.files["path"], value_set=live))

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {path: at for at, path in enumerate(self.files["path"].to_pylist())}

    @cached_property
    def _claims(self) -> list[ExpectedStats]:
        return expected_stats_of(self.files)

    @cached_property
    def _held(self) -> list[np.ndarray]:
        return [ranges for table in self.read() for ranges in tombstone_files.ranges_of(table)]


def no_row_tombstones() -> RowTombstones:
    """The empty record, for a stream without hidden messages."""
    return RowTombstones.of(0, TOMBSTONED_FILES.empty_table())


class RowTombstoneRecords:
    """Reads and writes `_retention/released/`: numbered records, each created if absent."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._directory = layout.engine_path("released")

    def any(self) -> bool:
        """Whether there is any record, even one that no commit names."""
        return bool(files.names(self._directory))

    def read(self, number: int) -> RowTombstones:
        """One record, with every range checked; 0 is the empty record.

        Raises:
            DamagedError: the record is missing or cannot be read.
        """
        if not number:
            return no_row_tombstones()
        place = self._place(number)
        stats, held = tombstone_files.checked(place)
        if held is None:
            return RowTombstones(number, stats, partial(tombstone_files.tables, place), place)
        return RowTombstones.of(number, held)

    def written(self) -> dict[int, int]:
        """Number → modification time of the record, nanoseconds since the epoch."""
        stems = {
            name.removesuffix(_SUFFIX): at_ms
            for name, at_ms in files.times(self._directory).items()
        }
        return {int(stem): at_ms * 1_000_000 for stem, at_ms in stems.items() if stem.isdigit()}

    def places(self, numbers: Iterable[int]) -> list[str]:
        """The locations of records."""
        return [self._place(number) for number in numbers]

    def write(self, tables: Iterable[pa.Table]) -> int:
        """Write a record under the next free number; returns the number.

        Args:
            tables: the files of the record, some at a time; shape `TOMBSTONED_FILES`.
        """
        with tombstone_files.spooled(tables) as content:
            taken = files.names(self._directory)
            number = int(taken[-1].removesuffix(_SUFFIX)) + 1 if taken else 1
            while not files.create_if_absent(self._place(number), content()):
                number += 1
        reached(Step.RELEASED_KEPT)
        return number

    def _place(self, number: int) -> str:
        return files.join(self._directory, f"{number:0{_DIGITS}d}{_SUFFIX}")


def recorded_file(left: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """A row of `TOMBSTONED_STATS`.

    Args:
        left: the row of `FILE_STATS` of the file's remaining messages.
        stored: the row of `FILE_STATS` of all messages in the file.
    """
    described = FILE_STATS.names[len(LOGGED_FILES) :]
    return {**left, **{f"stored_{name}": stored[name] for name in described}}
