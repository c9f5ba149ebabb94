"""Processes of contenders, one for each module of contenders, controlled by JSON lines."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.contenders import WHERE
from benchmarks.tasks import Task

_ROOT = Path(__file__).parents[1]


class ContenderError(Exception):
    """A contender could not do its work."""


class Process:
    """A worker, restarted after a failure, because the failure may have ended its JVM."""

    def __init__(self, names: list[str], places: Path) -> None:
        """Start a worker for contenders with copies below `places`.

        Raises:
            ContenderError: it does not start, for example because a library is missing.
        """
        self._names = names
        self._places = places
        self._count = itertools.count()
        self._start()

    def takes(self, contender: str, task: Task) -> bool:
        """Whether a contender has its own implementation of this piece of work."""
        return task.name in self._ways[contender]

    def run(self, contender: str, source: Path, task: Task) -> dict[str, Any]:
        """Make a contender do one run; every run has its own directory.

        Raises:
            ContenderError: it failed.
        """
        place = self._places / f"{contender}-{task.name}-{next(self._count)}"
        asked = {
            "contender": contender,
            "source": str(source),
            "place": str(place),
            "task": asdict(task),
        }
        try:
            print(json.dumps(asked), file=self._worker.stdin, flush=True)
            return self._read()
        except ContenderError:
            self.stop()
            self._start()
            raise

    def stop(self) -> None:
        """Stop the worker."""
        self._worker.communicate()

    def _start(self) -> None:
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", *self._names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            text=True,
        )
        try:
            self._ways = self._read()
        except ContenderError:
            self.stop()
            raise

    def _read(self) -> dict[str, Any]:
        line = self._worker.stdout.readline() if self._worker.stdout is not None else ""
        if not line:
            raise ContenderError(f"{', '.join(self._names)}: the process ended; see above")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ContenderError(answer["error"])
        return answer


@contextmanager
def processes(names: Iterable[str], places: Path) -> Iterator[dict[str, Process]]:
    """A process for each contender; those of one module share it."""

    def module(name: str) -> str:
        return WHERE[name].partition(":")[0]

    with ExitStack() as stack:
        started: dict[str, Process] = {}
        for _, group in itertools.groupby(sorted(names, key=module), key=module):
            members = list(group)
            process = Process(members, places)
            stack.callback(process.stop)
            started |= dict.fromkeys(members, process)
        yield started
