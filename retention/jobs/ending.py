"""Ending a job together with its parent processes, however they end."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Sequence

from retention.errors import UsageError

PATIENCE_S = 10.0
"""The time for a job to end between two commits before it is killed."""


def end_with(processes: Sequence[int]) -> None:
    """End this process as soon as one of the given processes ends; at once if one has ended already.

    A killed process cannot stop its children. Linux can notify a child of its parent's death, but a scheduler's task
    runner has a supervisor above it, and under `spark-submit` the parent is a JVM: so any process can be named. This
    process is asked to end (143), and killed if it does not; its own JVM ends when their pipe closes.

    Args:
        processes: their ids; none: this process is not watched.

    Raises:
        UsageError: one id is not that of a process, or this system cannot watch processes.
    """
    if not processes:
        return
    ends = select.poll()
    for process in processes:
        ends.register(_watched(process), select.POLLIN)

    def wait() -> None:
        ends.poll()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="end-with", daemon=True).start()


def _watched(process: int) -> int:
    """A file descriptor that becomes readable when a process ends."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    except (AttributeError, OSError) as error:
        raise UsageError(
            f"--end-with {process}: this process cannot be watched ({error}): Linux 5.3 or later can watch one that "
            "runs; leave the option out elsewhere"
        ) from error
