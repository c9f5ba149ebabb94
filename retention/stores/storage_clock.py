"""The clock of a stream's storage: graces end by it, so it must agree with this machine's clock."""

from __future__ import annotations

import uuid

from retention.core.units import SECOND, format_instant
from retention.errors import RefusedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout

TOLERANCE_NS = 60 * SECOND
"""The largest permitted difference of both clocks; more would delete files that a reader still relies on."""


def storage_now(layout: Layout) -> int:
    """The storage's modification time of a newly written file, nanoseconds since the epoch."""
    probe = layout.engine_path(f".clock.{uuid.uuid4().hex}.tmp")
    files.replace(probe, b"")
    now_ns = files.stat(probe)[1] * 1_000_000
    files.delete([probe])
    reached(Step.CLOCK_PROBED)
    return now_ns


def agreed_now(layout: Layout, now_ns: int) -> int:
    """The earlier of the storage's time and this machine's.

    Args:
        layout: the stream's layout.
        now_ns: this machine's clock, nanoseconds since the epoch.

    Raises:
        RefusedError: they differ by more than a minute.
    """
    there_ns = storage_now(layout)
    if abs(there_ns - now_ns) > TOLERANCE_NS:
        raise RefusedError(
            f"stream {layout.stream}: by the clock of the storage of {layout.root} it is {format_instant(there_ns)}, "
            f"by this machine's {format_instant(now_ns)}, so it is unknown which grace periods are over; nothing was "
            "deleted; set the clocks right"
        )
    return min(there_ns, now_ns)
