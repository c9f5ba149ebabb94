"""The interface of a veto, which keeps messages that rules would remove: spans by statistics, otherwise by rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from retention.core.spans import Array, Spans


class Veto(Protocol):
    """Reasons to keep messages; picklable.

    A kept message counts for limits as if it were removed, and a scan continues after it: a veto changes the fate of no
    other message.
    """

    @property
    def columns(self) -> Sequence[str]:
        """The columns that it reads in addition to `seq`."""
        ...

    def whole(self, spans: Spans) -> Array:
        """A mask of spans in which it certainly keeps every message."""
        ...

    def some(self, spans: Spans) -> Array:
        """A mask of spans in which it may keep a message."""
        ...

    def covers(self, rows: pa.Table) -> Array:
        """A mask of the rows that it keeps for each of its reasons; shape (reasons, rows)."""
        ...

    def within(self, spans: Spans, span: int) -> Veto:
        """The veto reduced to the messages of one span."""
        ...


def spans_kept(vetoes: Sequence[Veto], spans: Spans) -> tuple[Array, Array]:
    """Masks of the spans in which vetoes keep every message, and of those in which they may keep only some."""
    whole, some = (np.zeros(len(spans), dtype=bool) for _ in range(2))
    for veto in vetoes:
        whole |= veto.whole(spans)
        some |= veto.some(spans)
    return whole, some & ~whole


def rows_kept(vetoes: Sequence[Veto], rows: pa.Table) -> Array:
    """A mask of the rows that vetoes keep for each of their reasons; shape (reasons, rows)."""
    nothing = np.zeros((0, rows.num_rows), dtype=bool)
    return np.concatenate([nothing, *(veto.covers(rows) for veto in vetoes)])


def any_kept(vetoes: Sequence[Veto], rows: pa.Table) -> Array:
    """A mask of the rows that vetoes keep for any reason."""
    return np.asarray(rows_kept(vetoes, rows).any(axis=0))
