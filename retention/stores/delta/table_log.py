"""The log of a stream's Delta table, as far as it is asked whether there is one, and its version."""

from __future__ import annotations

from dataclasses import dataclass, replace

from retention.core.counters import Counters
from retention.ports import VersionToken
from retention.stores.delta import commit_tokens, internals
from retention.stores.delta import log as delta_history
from retention.stores.layout import Layout, StoreSettings


@dataclass(frozen=True)
class DeltaTableLog:
    """Implements `TableLog`."""

    layout: Layout
    grace_ns: int
    vectors: bool = False
    """Whether a new table has deletion vectors."""

    def exists(self) -> bool:
        """Whether the table exists."""
        return exists(self.layout)

    def version_token(self) -> VersionToken | None:
        """The newest version, with the digest of its log entry."""
        if not commit_tokens.all_stand(self.layout):
            # Opening the table reports lost commits, if there are any.
            return None
        newest = delta_history.newest_version_token(self.layout)
        return newest and replace(newest, wants=f"grace {self.grace_ns}")

    def begin(self, now_ms: int) -> None:
        """Create the empty table; do nothing if it exists or a rival creates it at the same moment."""
        from retention.stores.delta.table import create

        create(self.layout, self.grace_ns, now_ms, vectors=self.vectors)

    def standing(self) -> tuple[bool, Counters]:
        """Whether the table has any file, and its counters."""
        from retention.stores.delta.table import read_handle

        handle, live = read_handle(self.layout)
        return bool(live.num_rows), handle.logged


@dataclass(frozen=True)
class FixedPlaces:
    """Implements `FilePlaces`: files keep their locations until VACUUM deletes them."""

    layout: Layout

    def staged(self, path: str) -> str:
        """The location of a file before its commit."""
        return self.layout.live(path)

    def find(self, path: str) -> str:
        """The location of a live file."""
        return self.layout.live(path)

    def trashed(self, path: str) -> None:
        """Return None: a removed file does not move."""


def log_of(layout: Layout, settings: StoreSettings) -> DeltaTableLog:
    """The log of a stream's table, which a store would begin with its settings."""
    return DeltaTableLog(layout, settings.grace_ns, settings.vectors)


def exists(layout: Layout) -> bool:
    """Whether the table exists."""
    return any(name.endswith(".json") for name in internals.log_names(layout.messages))
