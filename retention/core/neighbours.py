"""Runs of neighbours to process together, bounded by their total weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def runs_within(weights: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Cut neighbours into runs of bounded weight; a heavier element is a run of its own.

    >>> list(runs_within([10, 5, 8, 20], most=16))
    [(0, 2), (2, 3), (3, 4)]

    Args:
        weights: the weight of each element.
        most: the maximum weight of a run.

    Yields:
        The index of the first element, and the index after the last.
    """
    start = weight = 0
    for at, heavy in enumerate(weights):
        if at > start and weight + heavy > most:
            yield start, at
            start, weight = at, 0
        weight += heavy
    if start < len(weights):
        yield start, len(weights)
