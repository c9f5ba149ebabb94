"""Comparison of a directory with the record of its taken files: new and changed files; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

_HIDDEN = ("_", ".")
_UNFINISHED = ("._COPYING_", ".tmp", ".temp", ".part", ".partial", ".inprogress", ".crdownload")
"""Name suffixes of files that programs rename once they are complete."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, as a listing shows it."""

    path: str
    """Relative to the source, `/` between its parts."""
    length: int
    """Bytes."""
    modified_ns: int
    """Time of the last change, nanoseconds since the epoch, as precise as the storage keeps it."""
    etag: str = ""
    """An object store's own digest; empty elsewhere."""
    inode: int = 0
    """The inode number, which a local disk keeps through renames; 0 elsewhere."""


@dataclass(frozen=True)
class TakenFile:
    """A file with rows that were taken."""

    path: str
    length: int
    modified_ns: int
    content: str = ""
    """Its content's digest, or the object store's ETag, each with a prefix; empty: unknown."""
    inode: int = 0
    """The inode number, which a local disk keeps through renames; 0: unknown."""

    def may_be(self, file: SourceFile) -> bool:
        """Whether a file under another path is certainly this one, provided that its content matches as well."""
        is_same = self.inode == file.inode if self.inode and file.inode else False
        return is_same or (self.length, self.modified_ns) == (file.length, file.modified_ns)

    def is_still(self, file: SourceFile) -> bool:
        """Whether a file is unchanged since it was taken, as far as a listing shows."""
        if file.etag and self.content:
            return self.content == etag_content(file.etag) and self.length == file.length
        return (self.length, self.modified_ns) == (file.length, file.modified_ns)


@dataclass(frozen=True)
class FilePart:
    """Bytes of a file to take: all of it, or those appended to it."""

    file: SourceFile
    start: int = 0

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.file.length - self.start


@dataclass(frozen=True)
class ListingDifference:
    """The differences between a listing and the record."""

    new: tuple[SourceFile, ...] = ()
    changed: tuple[tuple[TakenFile, SourceFile], ...] = ()
    gone: tuple[TakenFile, ...] = ()
    """Taken files that no longer exist."""
    unfinished: tuple[str, ...] = ()
    """Paths of files whose names mark unfinished writes; they are skipped."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no difference."""
        return not self.new and not self.changed


@dataclass(frozen=True)
class Resolved:
    """A difference after contents were compared."""

    parts: tuple[FilePart, ...] = ()
    """Parts to take, in the order in which they were written."""
    known: tuple[TakenFile, ...] = ()
    """Files without rows to take: renamed, touched, or skipped on request."""
    refused: tuple[str, ...] = ()
    """A phrase for each ambiguous file."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Old path, new path."""

    def with_part(self, file: SourceFile, start: int = 0) -> Resolved:
        """These decisions, and one to take a file from a byte on."""
        return replace(self, parts=(*self.parts, FilePart(file, start)))

    def with_known(self, file: TakenFile) -> Resolved:
        """These decisions, and one to take nothing of a file."""
        return replace(self, known=(*self.known, file))

    def with_refusal(self, why: str) -> Resolved:
        """These decisions, and a refusal with its reason."""
        return replace(self, refused=(*self.refused, why))

    def with_rename(self, old: str, new: str) -> Resolved:
        """These decisions, and the new path of a taken file."""
        return replace(self, renamed=(*self.renamed, (old, new)))


@dataclass(frozen=True)
class Wishes:
    """The user's answers to ambiguous cases, by path or version."""

    take: frozenset[str] = field(default_factory=frozenset)
    skip: frozenset[str] = field(default_factory=frozenset)

    def below(self, location: str) -> Wishes:
        """The same wishes, of a file below a location by its path there, as a listing shows it.

        >>> sorted(Wishes(frozenset({"/srv/in/a.json", "b.json"})).below("/srv/in").take)
        ['a.json', 'b.json']
        """
        above = location.rstrip("/") + "/"
        take, skip = (
            frozenset(wish.removeprefix(above) for wish in wishes)
            for wishes in (self.take, self.skip)
        )
        return Wishes(take, skip)


NO_WISHES = Wishes()


def etag_content(etag: str) -> str:
    """The content of an object as its store reports it."""
    return f"etag:{etag}"


def is_hidden(path: str) -> bool:
    """Whether Spark ignores a file: a part of its path begins with `.`, or with `_` and has no `=`.

    >>> is_hidden("_SUCCESS"), is_hidden("_a/x.json"), is_hidden("_day=1/x.json"), is_hidden("a/.x.crc")
    (True, True, False, True)
    """
    parts = path.split("/")
    return any(
        part.startswith(_HIDDEN) and (part.startswith(".") or "=" not in part) for part in parts
    )


def is_unfinished(path: str) -> bool:
    """Whether a file's name marks an unfinished write."""
    return path.endswith(_UNFINISHED)


def compare(listing: Iterable[SourceFile], taken: Mapping[str, TakenFile]) -> ListingDifference:
    """Compare a listing with the record of taken files; hidden files are ignored."""
    new, changed, unfinished, there = [], [], [], set()
    for file in listing:
        if is_hidden(file.path):
            continue
        there.add(file.path)
        known = taken.get(file.path)
        if known is None and is_unfinished(file.path):
            unfinished.append(file.path)
        elif known is None:
            new.append(file)
        elif not known.is_still(file):
            changed.append((known, file))
    gone = tuple(file for path, file in taken.items() if path not in there)
    return ListingDifference(tuple(in_order(new)), tuple(changed), gone, tuple(sorted(unfinished)))


def in_order(files: Iterable[SourceFile]) -> list[SourceFile]:
    """Files in the order in which they were written, then by path."""
    return sorted(files, key=lambda file: (file.modified_ns, file.path))
