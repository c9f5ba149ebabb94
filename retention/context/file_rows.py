"""Rows read from data files, cached in memory between reads; the content of a data file never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NUMBER = pa.field("file", pa.int64(), nullable=False)
"""The first column of cached rows: the number of their file."""
_MOST_CHUNKS = 64

Read: TypeAlias = Callable[[pa.Table], Iterator[pa.Table]]
"""Reads the rows of files (shape `FILE_STATS`); each row has its file's row number among them as its first column."""
Choose: TypeAlias = Callable[[pa.Table], pa.Table]
"""Filters rows, whatever files they are from."""

_Identity = tuple[str, int]
"""The path of a file, and the number of messages that count in it."""


class FileRows:
    """The rows of the files at the last read; the next read adds only those of new files."""

    def __init__(self, shape: pa.Schema, most: int) -> None:
        """Hold no rows yet.

        Args:
            shape: the rows; their first column is `NUMBER`.
            most: the number of messages of files up to which their rows are cached.
        """
        self._shape, self._most = shape, most
        self._held = shape.empty_table()
        self._slots: dict[_Identity, int] = {}
        self._next_slot = 0
        self._mutex = Lock()

    def chosen(self, files: pa.Table, read: Read, choose: Choose) -> pa.Table:
        """The chosen rows of files, each with its file's row number among `files`.

        Args:
            files: shape `FILE_STATS`.
            read: reads the rows of files that are not cached.
            choose: filters rows.
        """
        if pc.sum(files["messages"], min_count=0).as_py() > self._most:
            return pa.concat_tables([self._shape.empty_table(), *map(choose, read(files))])
        paths, messages = (files[name].to_pylist() for name in ("path", "messages"))
        identities = list(zip(paths, messages, strict=True))
        with self._mutex:
            self._take_in(files, identities, read)
            self._give_up(set(identities))
            rows = choose(self._held)
            slots = pa.array([self._slots[identity] for identity in identities], pa.int64())
        number = pc.index_in(rows[NUMBER.name], value_set=slots).cast(pa.int64())
        return rows.set_column(0, self._shape.field(0), number).filter(number.is_valid())

    def _take_in(self, files: pa.Table, identities: list[_Identity], read: Read) -> None:
        """Read the rows of files that are not cached yet."""
        new = [row for row, identity in enumerate(identities) if identity not in self._slots]
        if not new:
            return
        parts = [self._held]
        for rows in read(files.take(pa.array(new, pa.int64()))):
            slot = pc.add(rows[NUMBER.name], self._next_slot)
            parts.append(rows.set_column(0, self._shape.field(0), slot))
        self._slots |= {identities[row]: self._next_slot + at for at, row in enumerate(new)}
        self._next_slot += len(new)
        self._held = pa.concat_tables(parts)
        if self._held[NUMBER.name].num_chunks > _MOST_CHUNKS:
            self._held = self._held.combine_chunks()

    def _give_up(self, live: set[_Identity]) -> None:
        """Evict the rows of other files, once those files outnumber the live ones."""
        if len(self._slots) <= 2 * len(live):
            return
        self._slots = {identity: self._slots[identity] for identity in live}
        kept = np.fromiter(self._slots.values(), np.int64)
        is_kept = pc.is_in(self._held[NUMBER.name], value_set=pa.array(kept))
        self._held = self._held.filter(is_kept).combine_chunks()
