"""Single entries of a Delta log, read by their versions."""

from __future__ import annotations

from dataclasses import dataclass

from retention.delta import entries, log_files
from retention.delta.entries import Action
from retention.storage import files


@dataclass(frozen=True)
class StoredEntry:
    """The content of an entry of a log."""

    place: str
    content: bytes

    def actions(self) -> list[Action]:
        """All its actions.

        Raises:
            DamagedError: a line is not an action.
        """
        return entries.parse(self.content, self.place)

    def others(self) -> list[Action]:
        """Its actions on anything but files, as `entries.split`.

        Raises:
            DamagedError: as `actions`.
        """
        return entries.split(self.content, self.place).others


def stored_entry(root: str, version: int) -> StoredEntry | None:
    """The entry of a version; None: it is gone, or was never there."""
    place = log_files.entry_place(root, version)
    content = files.read_unchanging(place)
    return None if content is None else StoredEntry(place, content)
