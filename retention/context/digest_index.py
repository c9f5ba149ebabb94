"""The subject digests of a stream, cached in memory between reads; the digest of a data file never changes."""

from __future__ import annotations

from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.subject_counts import counts_in_pieces
from retention.ports import Store
from retention.schemas.files import SUBJECT_COUNTS_OF_FILES

_SLOT = SUBJECT_COUNTS_OF_FILES.field("file")
_MOST_CHUNKS = 64
MOST_IN_MEMORY = 8_000_000
"""Maximum messages of a stream with cached digests, up to a hundred bytes each; larger streams are not cached."""

_Identity = tuple[str, int]
"""The path of a file, and the number of messages that count in it."""


class DigestIndex:
    """The digests of the files at the last read; the next read adds only those of new files."""

    def __init__(self) -> None:
        self._held = SUBJECT_COUNTS_OF_FILES.empty_table()
        self._slots: dict[_Identity, int] = {}
        self._next_slot = 0
        self._mutex = Lock()

    def counts_of(self, store: Store, files: pa.Table, subject: str) -> pa.Table:
        """The digests' rows of one subject: shape `SUBJECT_COUNTS_OF_FILES`.

        Args:
            store: the table that has them.
            files: shape `FILE_STATS`.
            subject: a subject, not a filter.

        Raises:
            DamagedError: a data file whose digest is lost cannot be read.
        """
        if pc.sum(files["messages"], min_count=0).as_py() > MOST_IN_MEMORY:
            pieces = (_naming(subject, counts) for counts in counts_in_pieces(store, files))
            return pa.concat_tables([SUBJECT_COUNTS_OF_FILES.empty_table(), *pieces])
        paths, messages = (files[name].to_pylist() for name in ("path", "messages"))
        identities = list(zip(paths, messages, strict=True))
        with self._mutex:
            self._take_in(store, files, identities)
            self._give_up(set(identities))
            rows = _naming(subject, self._held)
            slots = pa.array([self._slots[identity] for identity in identities], pa.int64())
        number = pc.index_in(rows["file"], value_set=slots).cast(pa.int64())
        return rows.set_column(0, _SLOT, number).filter(number.is_valid())

    def _take_in(self, store: Store, files: pa.Table, identities: list[_Identity]) -> None:
        """Read the digests of files that are not cached yet."""
        new = [row for row, identity in enumerate(identities) if identity not in self._slots]
        if not new:
            return
        parts = [self._held]
        for counts in counts_in_pieces(store, files.take(pa.array(new, pa.int64()))):
            slot = pc.add(counts["file"], self._next_slot)
            parts.append(counts.set_column(0, _SLOT, slot))
        self._slots |= {identities[row]: self._next_slot + at for at, row in enumerate(new)}
        self._next_slot += len(new)
        self._held = pa.concat_tables(parts)
        if self._held["file"].num_chunks > _MOST_CHUNKS:
            self._held = self._held.combine_chunks()

    def _give_up(self, live: set[_Identity]) -> None:
        """Evict removed files, once they outnumber the live ones."""
        if len(self._slots) <= 2 * len(live):
            return
        self._slots = {identity: self._slots[identity] for identity in live}
        kept = np.fromiter(self._slots.values(), np.int64)
        self._held = self._held.filter(pc.is_in(self._held["file"], value_set=pa.array(kept)))


def _naming(subject: str, counts: pa.Table) -> pa.Table:
    return counts.filter(pc.equal(counts["subject"], subject))
