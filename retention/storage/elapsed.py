"""A monotonic clock for deadlines that also advances while the machine is suspended."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux stops CLOCK_MONOTONIC during suspension, but not this clock; other systems use the monotonic clock."""


def elapsed_ns() -> int:
    """Nanoseconds since an instant that is fixed for the life of this process."""
    return time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)
