"""A function applied to many items in a few threads; Arrow, Parquet and waiting release the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], threads: int
) -> Iterator[Result]:
    """Yield the result of each item, in their order; a single item needs no thread.

    An exception of the function is raised in place of its result; items not yet started are skipped.
    """
    if len(items) <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, items)
