"""The checkpoints that a process writes: after ten new versions, and listing the log only when they may be due."""

from __future__ import annotations

from retention.stores.delta import log as delta_history
from retention.stores.delta import table as delta_table
from retention.stores.layout import Layout

CHECKPOINT_EVERY = 10


class Checkpointing:
    """The newest version that this process committed, and the newest checkpoint that it saw."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._committed: int | None = None
        self._checkpoint = 0

    def committed(self, version: int) -> None:
        """Note a commit of this process."""
        self._committed = version

    def is_old(self, version: int) -> bool:
        """Whether a checkpoint came since a version, and is read as quickly as the entries after it."""
        return self._committed is not None and self._committed - version > CHECKPOINT_EVERY

    def write_if_due(self) -> None:
        """Write a checkpoint after ten new versions; those of others may count only with the next commit."""
        if self._committed is not None and 0 <= self._since(self._committed) < CHECKPOINT_EVERY:
            return
        versions, checkpoints = delta_history.versions(self._layout)
        self._checkpoint = max(checkpoints, default=0)
        newest = max(versions, default=0)
        if self._since(newest) >= CHECKPOINT_EVERY:
            delta_table.write_checkpoint(self._layout)
            self._checkpoint = newest

    def _since(self, version: int) -> int:
        return version - self._checkpoint
