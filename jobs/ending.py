"""Ending a job with the processes that it works for, however they end."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Sequence

from retention.errors import UsageError


def end_with(processes: Sequence[int]) -> None:
    """Have this process killed as soon as one of some processes is gone, killed or not; at once, if one is already.

    Who is killed cannot stop what it has started. Linux can tell a child of its parent's death, but a scheduler's task
    runner has a supervisor above it, and under `spark-submit` the parent is a JVM: so any process can be named. A run
    that is killed leaves the old state or the new one, and a JVM of its own ends when it can read no more from it.

    Args:
        processes: their ids; none: this process ends by itself.

    Raises:
        UsageError: one is the id of no process, or this system cannot watch any.
    """
    if not processes:
        return
    ends = select.poll()
    for process in processes:
        ends.register(_watched(process), select.POLLIN)

    def wait() -> None:
        ends.poll()
        _end()

    threading.Thread(target=wait, name="end-with", daemon=True).start()


def _watched(process: int) -> int:
    """A file descriptor that becomes readable when a process ends."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        _end()
        raise
    except (AttributeError, OSError) as error:
        raise UsageError(
            f"--end-with {process}: this process cannot be watched ({error}): Linux 5.3 or later can watch one that "
            "runs; leave the option out elsewhere"
        ) from error


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
