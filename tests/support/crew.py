"""Workers that run cases in forks: parents only import; threads of libraries start in the forks, where this is safe."""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).parents[2]
WORKERS = 2
HANGS_S = 600.0
"""The time after which a case counts as hanging, seconds: its process says where, and ends."""


class Crew:
    """Processes of one module that execute cases in parallel."""

    def __init__(self, module: str, folder: Path) -> None:
        """Start them.

        Args:
            module: its `main` calls `serve`.
            folder: the folder for files of cases.
        """
        self.folder = folder
        self._free: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        for _ in range(WORKERS):
            command = [sys.executable, "-m", module]
            pipe = subprocess.PIPE
            self._free.put(subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True))

    def run(self, **case: Any) -> int:
        """Execute a case; returns the exit status of its process."""
        worker = self._free.get()
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            worker.stdin.write(json.dumps(case, default=str) + "\n")
            worker.stdin.flush()
            return int(worker.stdout.readline())
        finally:
            self._free.put(worker)

    def stop(self) -> None:
        """Stop them."""
        for _ in range(WORKERS):
            self._free.get().communicate()


def serve(carry_out: Callable[[dict[str, Any]], None]) -> None:
    """Execute each case, a line of JSON on standard input, and print the exit status of its process."""
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            try:
                carry_out(json.loads(line))
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
