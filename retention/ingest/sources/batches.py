"""A backlog divided into batches, one commit each; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

MOST_FILES = 1_000
"""Files per batch: it limits the files that wait for a commit, and the memory for them."""
MOST_BYTES = 8 << 30
"""Bytes of a batch's files; a larger file is a batch of its own."""


def batches_of(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Divide items, in their order, into batches of at most `MOST_FILES` and, if there are several, `MOST_BYTES`.

    Args:
        items: files.
        size: the bytes of one.
    """
    batch: list[Item] = []
    held = 0
    for item in items:
        if batch and (len(batch) >= MOST_FILES or held + size(item) > MOST_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += size(item)
    if batch:
        yield batch
