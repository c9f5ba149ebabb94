"""The port of an engine: a place where functions run, which decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa


Task = TypeVar("Task")
Result = TypeVar("Result")
Run = Callable[[Callable[[Any], Any], Sequence[Any], Sequence[int]], Sequence[Any]]
"""A runner of tasks, as `Engine.map`: a function, tasks, and the bytes that each reads; results in their order."""


def run_here(
    function: Callable[[Any], object], tasks: Sequence[object], weights: Sequence[int]
) -> Sequence[object]:
    """Run tasks one after the other, in this thread."""
    del weights
    return [function(task) for task in tasks]


@runtime_checkable
class WritesFiles(Protocol):
    """A task that writes files; only the results of attempts name them."""

    def attempt(self) -> Self:
        """The task as one attempt: the names of its files are unique to the attempt."""
        ...


Part = tuple[int, bytes]
"""A key, from 0 on, and content for the task that reduces that key."""


@dataclass(frozen=True)
class Gathering(Generic[Result]):
    """A function of all parts of one key, and the number of tasks for all keys."""

    function: Callable[[int, Sequence[bytes]], Result]
    """Picklable; its arguments are the key and the contents, in order of the tasks that produced them."""
    tasks: int


class Engine(Protocol):
    """A place where functions run, with the same results everywhere."""

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
        """Partition the results of tasks by key, partition the results of each key by another, and reduce those.

        All functions are picklable. One key's parts are in memory at a time, and everything else is on a disk; nothing
        remains there if the process ends.

        Args:
            deal: the parts of one task.
            tasks: balanced by `weights`, as for `map`.
            weights: bytes to read.
            deal_again: the parts made from those of one key.
            gather: the result of one key of these.

        Returns:
            The results, in order of keys; keys without parts have none.
        """
        ...


def run_task(function: Callable[[Task], Result], task: Task) -> Result:
    """Carry out one attempt at a task; its result."""
    return function(task.attempt() if isinstance(task, WritesFiles) else task)


@dataclass(frozen=True)
class GroupedRows:
    """Rows to group by their column `key`, in the order of their column `place`."""

    rows: pa.Table
    aside: object
    """The task's result beside its rows."""


Read = Callable[[Any], GroupedRows]
Fold = Callable[[str, "Iterator[pa.Table]"], Any]
"""A function of a key and its rows, tables in the order of their places, read once."""


@runtime_checkable
class GroupsRows(Protocol):
    """An engine that can group rows read by tasks; other engines fold them in the caller."""

    def grouped(
        self,
        read: Read,
        fold: Fold,
        schema: pa.Schema,
        tasks: Sequence[object],
        weights: Sequence[int],
    ) -> tuple[list[Any], Mapping[str, Any]]:
        """Read rows in tasks, and fold those of each key in others; none has all rows of a key in memory.

        The rows have the columns of `schema`: `key` (string), `place` (int64), and others. Returns the
        tasks' results in their order, and key → the result of its fold; or raises the error of a task.
        """
        ...
