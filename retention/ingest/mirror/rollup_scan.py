"""Messages that roll-ups among carried ones replace: a first scan finds them, so that the second writes the rest."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core import headers
from retention.ingest.rollup import EVERYTHING, NONE, SUBJECT
from retention.rules.requests import Rollup

_KINDS = {b"sub": SUBJECT, b"all": EVERYTHING}


def kinds_of(blocks: pa.ChunkedArray) -> np.ndarray:
    """The roll-up that each message requests: `NONE`, `SUBJECT` or `EVERYTHING`; other values are not roll-ups."""
    kinds = np.full(len(blocks), NONE)
    named = pc.fill_null(pc.match_substring(blocks, f"\r\n{headers.ROLLUP}:"), False)  # noqa: FBT003
    places = np.flatnonzero(np.asarray(named, dtype=bool))
    for row, block in zip(places, blocks.take(pa.array(places)).to_pylist(), strict=True):
        value = (headers.lookup(block, headers.ROLLUP) or b"").lower()
        kinds[row] = _KINDS.get(value, NONE)
    return kinds


class ReplacedMessages:
    """The last roll-up of each subject, and of everything, among messages in order."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        """Scan rows with `seq`, `subject` and `headers`, ascending; only roll-ups are kept in memory."""
        self._last: dict[str, int] = {}
        self._everything = -1
        for table in tables:
            kinds = kinds_of(table["headers"])
            places = np.flatnonzero(kinds != NONE)
            asking = table.select(["seq", "subject"]).take(pa.array(places))
            columns = (asking["seq"].to_pylist(), asking["subject"].to_pylist())
            for kind, seq, subject in zip(kinds[places].tolist(), *columns, strict=True):
                if kind == EVERYTHING:
                    self._everything = seq
                else:
                    self._last[subject] = seq

    def left(self, rows: pa.Table) -> pa.Table:
        """The rows that no later message among all of them replaces.

        The last roll-up of subject a is at 5, of everything at 3: rows on a are kept from 5 on, others from 3 on.
        """
        if not self._last and self._everything < 0:
            return rows
        encoded = rows["subject"].combine_chunks().dictionary_encode()
        last = [self._last.get(name, -1) for name in encoded.dictionary.to_pylist()]
        bounds = np.maximum(np.array(last, dtype=np.int64), self._everything)
        seqs = rows["seq"].to_numpy()
        return rows.filter(pa.array(seqs >= bounds[encoded.indices.to_numpy()]))

    def stored(self) -> Rollup:
        """The removal of everything that the roll-ups replace among the stored messages."""
        return Rollup(tuple(self._last), self._everything >= 0)
