"""The local engine: functions run in this process, two threads at a time where there is more to do than one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from retention.ports import Result, Task

_THREADS = min(4, os.cpu_count() or 1)


class LocalEngine:
    """Runs tasks in threads: Arrow and Parquet do their work outside the interpreter's lock."""

    name = "local"

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], weights: Sequence[int]
    ) -> list[Result]:
        """Apply `function` to each task; results in order of tasks."""
        del weights
        if len(tasks) <= 1:
            return [function(task) for task in tasks]
        with ThreadPoolExecutor(_THREADS) as pool:
            return list(pool.map(function, tasks))
