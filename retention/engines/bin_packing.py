"""Bin packing of tasks into groups of about equal weight, so that no task delays the others."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

GROUP_BYTES = 256 * 2**20
"""The maximum bytes read by a group, unless a single task reads more."""


def groups(weights: Sequence[int], workers: int) -> list[list[int]]:
    """Split task numbers into groups, each with about the same sum of weights.

    Args:
        weights: the bytes that each task reads.
        workers: the number of groups that can run at once.

    Returns:
        Nonempty lists of task numbers.

    >>> groups([5, 3, 3, 1], workers=2)
    [[0, 3], [1, 2]]
    """
    count = min(len(weights), max(workers, -(-sum(weights) // GROUP_BYTES)))
    filled: list[tuple[int, int, list[int]]] = [(0, number, []) for number in range(count)]
    for task in sorted(range(len(weights)), key=lambda task: (-weights[task], task)):
        weight, number, members = heapq.heappop(filled)
        heapq.heappush(filled, (weight + weights[task], number, [*members, task]))
    return [
        sorted(members) for _, _, members in sorted(filled, key=lambda group: group[1]) if members
    ]
