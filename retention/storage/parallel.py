"""A function applied to many things, a few at a time: Arrow, Parquet and waiting do without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Thing = TypeVar("Thing")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Thing], Result], things: Sequence[Thing], threads: int
) -> Iterator[Result]:
    """The result for each thing, in their order; one thing alone needs no thread.

    Whatever the function raises comes out in the place of its result, and those not begun by then are not.
    """
    if len(things) <= 1:
        yield from map(function, things)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, things)
