"""Runs of neighbours that are worked on together: as many as a bound on their weight allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def runs_within(weights: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Cut neighbours into runs of at most so much weight; what is heavier is alone.

    >>> list(runs_within([10, 5, 8, 20], most=16))
    [(0, 2), (2, 3), (3, 4)]

    Args:
        weights: of each.
        most: of a run.

    Yields:
        The number of the first, and that behind the last.
    """
    start = weight = 0
    for at, heavy in enumerate(weights):
        if at > start and weight + heavy > most:
            yield start, at
            start, weight = at, 0
        weight += heavy
    if start < len(weights):
        yield start, len(weights)
