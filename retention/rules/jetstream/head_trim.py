"""Head trims: remove the lowest sequences while the stream exceeds a limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.core.spans import Array, Spans
from retention.rules.rule import Decision


@dataclass(frozen=True)
class HeadCut:
    """The extent of a head trim.

    The first `whole` spans are removed; from the next one, the lowest messages are removed until
    `rest` (messages for MaxMsgs, bytes for MaxBytes) is reached. `rest` 0 means that the cut is
    between two spans.
    """

    limit: int
    total: int
    whole: int
    rest: int


def head_cut(limit: int, amounts: Array) -> HeadCut:
    """Find the smallest cut that keeps at most `limit` (NATS STREAM.UPDATE order, steps 2 and 3).

    Of these 90 bytes, 40 are removed: the first span and 10 bytes of the second:

    >>> head_cut(50, np.array([30, 40, 20]))
    HeadCut(limit=50, total=90, whole=1, rest=10)

    Args:
        limit: the maximum messages or bytes.
        amounts: messages or bytes of each span, in sequence order.
    """
    total = int(amounts.sum())
    surplus = total - limit
    if surplus <= 0:
        return HeadCut(limit, total, whole=0, rest=0)
    reached = np.cumsum(amounts)
    whole = int(np.searchsorted(reached, surplus, side="right"))
    rest = surplus - (int(reached[whole - 1]) if whole else 0)
    return HeadCut(limit, total, whole, rest)


def lowest_until(rest: int, amounts: Array) -> int:
    """Count the lowest messages that amount to at least `rest`.

    Args:
        rest: messages or bytes to remove; 0 or less removes nothing.
        amounts: 1 or the size of each message, in sequence order.
    """
    return 0 if rest <= 0 else int(np.searchsorted(np.cumsum(amounts), rest, side="left")) + 1


@dataclass(frozen=True, kw_only=True)
class HeadTrim(Decision):
    """A head trim: a prefix of the spans is removed, and the next span may lose its lowest messages."""

    cut: HeadCut

    def share(self, span: int, amounts: Array) -> int:
        """The messages or bytes removed from a span.

        Args:
            span: its number.
            amounts: messages or bytes of each span, in the unit of the limit.
        """
        if span == self.cut.whole:
            return self.cut.rest
        return int(amounts[span]) if span < self.cut.whole else 0

    def ordered(self) -> Array:
        """A mask of the span in which the trim ends."""
        return self.unclear

    def ends_within(self) -> bool:
        """Always True: a prefix gets a limit equivalent to that of the stream, see `Rule.ahead_of`."""
        return True


def cut_masks(cut: HeadCut, spans: Spans) -> tuple[Array, Array]:
    """Two masks: the spans that a trim removes completely, and the one in which it ends, if any."""
    whole, ends = np.zeros(len(spans), dtype=bool), np.zeros(len(spans), dtype=bool)
    whole[: cut.whole] = True
    ends[cut.whole : cut.whole + 1] = cut.rest > 0
    return whole, ends
