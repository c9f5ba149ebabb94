"""A run to be undone: its files, their present locations, and their messages in the current table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.spans import Array
from retention.core.vector_paths import data_path, vector_place
from retention.datafile.parquet import read_columns
from retention.history.record import RunRecord
from retention.ports import Snapshot
from retention.storage import files
from retention.stores.checks import swap
from retention.stores.layout import Layout, identities


@dataclass(frozen=True)
class RunToUndo:
    """A run to be undone, and the current table."""

    opened: OpenedStream
    snapshot: Snapshot
    outcome: RunRecord
    """The run's record in the run history."""
    later: Sequence[RunRecord]
    """The outcomes of later runs that have, or may have, changed the table, newest first."""
    removed: pa.Table
    """The files that the run removed, shape `FILE_STATS`."""
    added: pa.Table
    """The copies that the run wrote, shape `FILE_STATS`."""

    @property
    def run(self) -> str:
        """The run's name."""
        return self.outcome.run

    @property
    def layout(self) -> Layout:
        """The stream's layout."""
        return self.opened.layout

    @cached_property
    def live(self) -> pa.Table:
        """The files of the table, shape `FILE_STATS`."""
        return self.opened.store.inventory(self.snapshot).files

    @cached_property
    def rewritten(self) -> list[str]:
        """Copies that are no longer in the table."""
        return sorted(set(self.added["path"].to_pylist()) - self._live_paths)

    @cached_property
    def restored(self) -> list[str]:
        """Removed files that the table has again."""
        return sorted(set(self.removed["path"].to_pylist()) & self._live_paths)

    @cached_property
    def _live_paths(self) -> set[str]:
        return set(self.snapshot.files["path"].to_pylist())

    @cached_property
    def locations(self) -> dict[str, str | None]:
        """Path → the present location of that very removed file; None: it is gone, or another file replaced it."""
        return self._locations_of(self.removed)

    @property
    def lost(self) -> list[str]:
        """Removed files that exist nowhere any more, or were replaced by other files."""
        return [path for path, location in self.locations.items() if location is None]

    @property
    def markers(self) -> pa.Table:
        """The files with delete markers that the run wrote: their sequences follow everything that it removed."""
        last = pc.max(self.removed["max_seq"]).as_py()
        return self.added.filter(pc.greater(self.added["min_seq"], -1 if last is None else last))

    def without_copies(self, table: pa.Table) -> pa.Table:
        """The files of a table that the run did not write."""
        copies = pc.is_in(table["path"], value_set=self.added["path"].combine_chunks())
        return table.filter(pc.invert(copies))

    def overlaps(self, others: pa.Table) -> bool:
        """Whether the range of a removed file meets the range of one of other files."""
        for partition in self.removed["partition"].unique().to_pylist():
            removed, other = (
                table.filter(pc.equal(table["partition"], partition))
                for table in (self.removed, others)
            )
            if any(True for _ in swap.overlapping(removed, other, removed.slice(0, 0))):
                return True
        return False

    def files_between(self, partition: int, first: int, last: int) -> pa.Table:
        """The files of the table with a range that meets the sequences `first` to `last`, shape `FILE_STATS`."""
        live = self.live
        meets = pc.and_(
            pc.less_equal(live["min_seq"], last), pc.greater_equal(live["max_seq"], first)
        )
        return live.filter(pc.and_(pc.equal(live["partition"], partition), meets))

    def already_present(self, partition: int, seqs: Array) -> Array:
        """A mask of ascending sequences: True where the table has the message."""
        mask = np.zeros(len(seqs), dtype=bool)
        if len(seqs):
            meeting = self.files_between(partition, int(seqs[0]), int(seqs[-1]))
            for file in self.opened.store.data_files(meeting):
                mask |= np.isin(seqs, seqs_of(file))
        return mask

    def messages(self) -> dict[int, Array] | None:
        """Partition → the sequences that the run removed; None: some of its files are missing."""
        removed, kept = self._sequences(self.removed), self._sequences(self.added)
        if removed is None or kept is None:
            return None
        return {part: np.setdiff1d(seqs, kept.get(part, [])) for part, seqs in removed.items()}

    def locate(self, paths: Sequence[str], sizes: Sequence[int] | None = None) -> list[str | None]:
        """The present location of each file, live or removed; None: it does not exist, or has another size in bytes."""
        located: list[str | None] = [None] * len(paths)
        for directory in (self.layout.messages, self.layout.engine_path("trash")):
            locations = [files.join(directory, data_path(path)) for path in paths]
            for at, length in enumerate(files.lengths(locations)):
                is_it = length is not None and (sizes is None or length == sizes[at])
                located[at] = located[at] or (locations[at] if is_it else None)
        return [
            None if self._lost_vector(path) else at for path, at in zip(paths, located, strict=True)
        ]

    def _lost_vector(self, path: str) -> bool:
        """Whether a path names a vector whose file does not exist."""
        place = vector_place(path)
        return place is not None and files.length(self.layout.live(place.path)) is None

    def _locations_of(self, table: pa.Table) -> dict[str, str | None]:
        paths, sizes = table["path"].to_pylist(), table["file_bytes"].to_pylist()
        return dict(zip(paths, self.locate(paths, sizes), strict=True))

    def _sequences(self, table: pa.Table) -> dict[int, Array] | None:
        locations = self._locations_of(table)
        parts: dict[int, list[Array]] = {}
        for path, partition, segment in identities(table):
            location = locations[path]
            if location is None:
                return None
            seqs = seqs_of(self.layout.data_file((path, partition, segment), location))
            parts.setdefault(partition, []).append(seqs)
        return {partition: np.concatenate(several) for partition, several in parts.items()}


def seqs_of(file: DataFile) -> Array:
    """The sequences of a data file's messages, ascending."""
    seqs: Array = read_columns(file, ("seq",))[0]["seq"].to_numpy()
    return seqs
