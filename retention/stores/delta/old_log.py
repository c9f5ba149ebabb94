"""Old entries and checkpoints of a Delta log, which a later checkpoint replaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention.delta.checkpoints import read_checkpoint
from retention.errors import DamagedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.delta import internals
from retention.stores.layout import Layout
from retention.stores.old_log import first_needed


@dataclass(frozen=True)
class DeltaOldLog:
    """Implements `OldLog`."""

    layout: Layout
    version: int
    cutoff_ns: int
    """Entries written at that instant or later are kept, nanoseconds since the epoch."""

    def places(self) -> list[str]:
        """The files before the newest old, complete and readable checkpoint (Delta protocol, metadata cleanup)."""
        messages = self.layout.messages
        entries, _ = internals.log_times(messages)
        for version, places in internals.whole_checkpoints(messages, self.version):
            stands = first_needed(entries, [version], self.cutoff_ns) is not None
            if stands and _is_readable(messages, places):
                return internals.log_places(messages, version)
        return []

    def trim(self, old: Sequence[str]) -> None:
        """Delete old files of the log, oldest first, so that a kill leaves no gap."""
        if old:
            files.delete(old)
            reached(Step.LOG_TRIMMED)


def _is_readable(table: str, places: Sequence[str]) -> bool:
    """Whether a checkpoint can be read, with all the files that it names."""
    try:
        read_checkpoint(table, [place.rpartition("/")[2] for place in places])
    except DamagedError:
        return False
    return True
