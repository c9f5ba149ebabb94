"""Staged files that no commit has named yet: only those may ever be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from retention.core.inventory import slot_of
from retention.errors import CommitUnknownError, RetentionError, StorageError


class Staged:
    """The slots that one store handed out; each attempt to fill one gives its file a name of its own."""

    def __init__(self) -> None:
        self._open: set[str] = set()

    def add(self, path: str) -> str:
        """Remember a path handed out."""
        self._open.add(slot_of(path))
        return path

    @contextmanager
    def settling(self, paths: Iterable[str]) -> Iterator[None]:
        """Wrap a commit of staged paths: they stay deletable only if it certainly did not happen."""
        named = self._open.intersection(map(slot_of, paths))
        self._open -= named
        try:
            yield
        except (CommitUnknownError, StorageError):
            raise
        except RetentionError:
            self._open |= named
            raise

    def release(self, paths: Iterable[str]) -> list[str]:
        """Give up the slots of those paths whose files may be deleted now: staged here, and certainly in no commit."""
        gone = sorted(self._open.intersection(map(slot_of, paths)))
        self._open.difference_update(gone)
        return gone
