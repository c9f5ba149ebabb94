"""The local engine: functions run in threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial

from retention.engine_port import Gathering, Part, Result, Task, run_task
from retention.engines.spool import Spool
from retention.storage.parallel import in_threads

THREADS = min(4, os.cpu_count() or 1)
"""The number of tasks at a time."""


class LocalEngine:
    """An engine that runs tasks in this process, a few at a time."""

    name = "local"

    def __init__(self, directory: str | None = None) -> None:
        """Make an engine whose shuffles lie in a directory, by default that of temporary files."""
        self._directory = directory

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], weights: Sequence[int]
    ) -> list[Result]:
        """Apply `function` to each task; results in order of tasks."""
        del weights
        return list(in_threads(partial(run_task, function), tasks, THREADS))

    def shuffle(
        self,
        deal: Callable[[Task], Iterable[Part]],
        tasks: Sequence[Task],
        weights: Sequence[int],
        deal_again: Gathering[Iterable[Part]],
        gather: Gathering[Result],
    ) -> list[Result]:
        """Distribute parts by key, twice, through temporary files; results in order of keys.

        Raises:
            StorageError: their directory is full.
        """
        del weights
        with closing(Spool(self._directory)) as dealt, closing(Spool(self._directory)) as again:

            def first(number: int) -> None:
                for key, content in deal(tasks[number]):
                    dealt.put(number, key, content)

            def second(number: int) -> None:
                for key, content in deal_again.function(number, dealt.parts(number)):
                    again.put(number, key, content)

            def last(number: int) -> Result:
                return gather.function(number, again.parts(number))

            for _ in in_threads(first, range(len(tasks)), THREADS):
                pass
            for _ in in_threads(second, dealt.keys, THREADS):
                pass
            return list(in_threads(last, again.keys, THREADS))
