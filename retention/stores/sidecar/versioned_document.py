"""One small document as a log of whole versions: the newest is valid, and only one rival can write the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from retention.storage import files
from retention.storage.crash_points import Step, reached

KEPT = 10
"""The number of newest versions to keep, so that a reader finds a version while others write."""
_DIGITS = 20


class Versions(Protocol):
    """The log of one document."""

    @property
    def directory(self) -> str:
        """The directory of the document's versions."""
        ...

    def newest(self) -> tuple[str, int, bytes] | None:
        """Location, number and content of the newest version; None if there is none."""
        ...

    def add(self, number: int, content: bytes) -> bool:
        """Create a version, numbered from 1; False if a rival was or may have been first."""
        ...

    def tidy(self) -> None:
        """Delete versions that are no longer needed."""
        ...

    def forget(self) -> None:
        """Delete all versions but the newest, at once."""
        ...


def versions_in(directory: str) -> Versions:
    """The versions in a directory; it need not exist."""
    if files.is_remote(directory):
        # Load deltalake only if nothing else excludes rivals.
        from retention.stores.sidecar.versioned_delta import CommitVersions

        return CommitVersions(directory)
    return FileVersions(directory)


@dataclass(frozen=True)
class FileVersions:
    """Numbered local files, each created if absent; old ones are deleted, lowest first."""

    directory: str

    def newest(self) -> tuple[str, int, bytes] | None:
        """Location, number and content of the newest version; None if there is none."""
        while numbers := self._numbers():
            location = self._place(numbers[-1])
            content = files.read_bytes(location)
            if content is not None:
                return location, numbers[-1], content
        return None

    def add(self, number: int, content: bytes) -> bool:
        """Create a version; False if a rival was or may have been first.

        A paused writer can create a number a second time after its deletion. Newer versions then exist, because the
        newest is never deleted, so a version counts only if it is the newest right after its creation.
        """
        if not files.create_if_absent(self._place(number), content):
            return False
        reached(Step.CONSUMER_WRITTEN)
        return self._numbers()[-1] == number

    def tidy(self) -> None:
        """Delete all but the newest versions."""
        files.delete(self._place(number) for number in self._numbers()[:-KEPT])
        reached(Step.CONSUMER_TIDIED)

    def forget(self) -> None:
        """Delete all versions but the newest."""
        files.delete(self._place(number) for number in self._numbers()[:-1])
        reached(Step.CONSUMER_TIDIED)

    def _numbers(self) -> list[int]:
        """The numbers of existing versions, ascending; a listing may lag, so later versions are probed by name."""
        names = (name.partition(".")[0] for name in files.names(self.directory))
        numbers = sorted(int(name) for name in names if len(name) == _DIGITS and name.isdigit())
        following = (numbers[-1] if numbers else 0) + 1
        while files.length(self._place(following)) is not None:
            numbers.append(following)
            following += 1
        return numbers

    def _place(self, number: int) -> str:
        return files.join(self.directory, f"{number:0{_DIGITS}d}.json")
