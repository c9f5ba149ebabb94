"""The local engine: functions run in threads of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial

from retention.ports import Result, Task, run_task
from retention.storage.parallel import in_threads

_THREADS = min(4, os.cpu_count() or 1)


class LocalEngine:
    """An engine that runs tasks in this process, a few at a time."""

    name = "local"

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], weights: Sequence[int]
    ) -> list[Result]:
        """Apply `function` to each task; results in order of tasks."""
        del weights
        return list(in_threads(partial(run_task, function), tasks, _THREADS))
