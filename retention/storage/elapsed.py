"""A clock for what must not happen too late: it never goes back, and goes on while the machine is suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux stops CLOCK_MONOTONIC while it is suspended, and has this one; elsewhere the monotonic clock has to do."""


def elapsed_ns() -> int:
    """Nanoseconds since an instant that is the same for this process's lifetime."""
    return time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)
