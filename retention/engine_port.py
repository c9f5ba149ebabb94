"""The port of an engine: a place where functions run, which decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import pyarrow as pa

Task = TypeVar("Task")
Result = TypeVar("Result")
Run = Callable[[Callable[[Any], Any], Sequence[Any], Sequence[int]], Sequence[Any]]
"""What runs tasks as `Engine.map` does: a function, tasks, and the bytes that each reads; results in their order."""


def run_here(
    function: Callable[[Any], Any], tasks: Sequence[Any], weights: Sequence[int]
) -> Sequence[Any]:
    """Run tasks one after the other, in this thread."""
    del weights
    return [function(task) for task in tasks]


@runtime_checkable
class WritesFiles(Protocol):
    """A task that writes files; only the results of attempts tell which."""

    def attempt(self) -> Self:
        """The task as one attempt carries it out: what it writes has names that no other attempt has."""
        ...


Part = tuple[int, bytes]
"""A key, from 0 on, and content for whoever gathers the parts of that key."""


@dataclass(frozen=True)
class Gathering(Generic[Result]):
    """A function of all parts of one key, and among how many tasks the keys are shared out."""

    function: Callable[[int, Sequence[bytes]], Result]
    """Picklable; it is given the key, and the contents in order of those who dealt them, one each."""
    tasks: int


class Engine(Protocol):
    """A place where functions run; what they compute is the same everywhere."""

    @property
    def name(self) -> str:
        """`local` or `spark`."""
        ...

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], weights: Sequence[int]
    ) -> list[Result]:
        """Apply a picklable function to each task, balanced by `weights` (bytes to read); results in order of tasks.

        Tasks that write files are carried out as attempts of their own.
        """
        ...

    def shuffle(
        self,
        deal: Callable[[Task], Iterable[Part]],
        tasks: Sequence[Task],
        weights: Sequence[int],
        deal_again: Gathering[Iterable[Part]],
        gather: Gathering[Result],
    ) -> list[Result]:
        """Deal the parts of tasks out by key, deal what becomes of each key out by another, and gather that.

        All functions are picklable. One key's parts are held at a time, and everything else is on a disk; nothing is
        left there if the process ends.

        Args:
            deal: the parts of one task.
            tasks: balanced by `weights`, as for `map`.
            weights: bytes to read.
            deal_again: the parts that are made of those of one key.
            gather: the result of one key of these.

        Returns:
            The results, in order of keys; keys of which nothing was dealt have none.
        """
        ...


def run_task(function: Callable[[Task], Result], task: Task) -> Result:
    """Carry out one attempt at a task; its result."""
    return function(task.attempt() if isinstance(task, WritesFiles) else task)


@dataclass(frozen=True)
class GroupedRows:
    """Rows that are to be brought together by their column `key`, in the order of their column `place`."""

    rows: pa.Table
    aside: Any
    """What is to be told of them beside that."""


Read = Callable[[Any], GroupedRows]
Fold = Callable[[str, Iterator[pa.Table]], Any]
"""A function of a key and its rows, tables in the order of their places, each seen once."""


@runtime_checkable
class GroupsRows(Protocol):
    """An engine that can bring together rows which tasks read; any other folds them where they come by."""

    def grouped(
        self,
        read: Read,
        fold: Fold,
        schema: pa.Schema,
        tasks: Sequence[Any],
        weights: Sequence[int],
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """Let tasks read rows, and others fold those of each key; none holds all rows of a key at a time.

        The rows have the columns of `schema`: `key` (string), `place` (int64), and others. Back come what reading told
        aside, in order of the tasks, and key → what its fold gave; or the error that a task raised.
        """
        ...
