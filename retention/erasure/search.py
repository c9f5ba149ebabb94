"""The search of every file below some places for the needles of an erasure."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from retention.core.progress import with_progress
from retention.erasure.encodings import FORMS, MAX_GROWTH, RAW, unescaped
from retention.erasure.needles import KINDS, Needles
from retention.erasure.patterns import MAX_WINDOWS, Match, PatternIndex
from retention.erasure.readable import UndecodableError, View, views
from retention.errors import StorageError
from retention.storage import files
from retention.storage.parallel import in_threads
from retention.storage.tables import in_memory

_AT_HAND_BYTES = 16 << 20
BYTES = "bytes"
"""The view of a file as it is stored."""


@dataclass(frozen=True, order=True)
class Finding:
    """A place where a needle still is; never the needle itself."""

    location: str
    kind: str
    """The kind of the value that the needle belongs to, one of `KINDS`."""
    encoding: str
    """The form of the needle, such as `raw`, or `json base64`: base64 within escaped JSON."""
    view: str
    """The reading of the file that contains it: `path`, `bytes`, or how it was decoded."""
    offset: int
    """The offset in that reading; with escapes, that of the part that has them."""


@dataclass(frozen=True)
class SearchResult:
    """The findings of a search, and the amount that it read."""

    findings: tuple[Finding, ...] = ()
    """The first place of any value of each kind in each form, in each view of each file."""
    files: int = 0
    bytes_raw: int = 0
    bytes_decoded: int = 0
    undecodable: tuple[str, ...] = ()
    """The files that could not be decoded, or not wholly; their bytes as stored were searched."""
    vanished: tuple[str, ...] = ()
    """The files that were listed, and deleted before they were read."""
    unreadable: tuple[str, ...] = ()
    """The files that the storage did not let us read to their end, such as for want of a permission."""

    @property
    def is_clean(self) -> bool:
        """Whether no needle was found."""
        return not self.findings

    @property
    def unread(self) -> tuple[str, ...]:
        """The files of which the search cannot tell what they contain."""
        return tuple(sorted({*self.undecodable, *self.vanished, *self.unreadable}))


@dataclass
class _FileSearch:
    """The search of one file, in progress."""

    location: str
    needles: Needles
    index: PatternIndex
    findings: set[Finding] = field(default_factory=set)
    bytes_raw: int = 0
    bytes_decoded: int = 0
    is_undecodable: bool = False
    is_vanished: bool = False
    is_unreadable: bool = False

    def run(self, path: str) -> _FileSearch:
        """Search the path of the file, then all its views."""
        self.search_text(path)
        try:
            with files.reading(self.location) as opened:
                for view in views(in_memory(opened, _AT_HAND_BYTES)):
                    length = self._search(view)
                    if view.name == BYTES:
                        self.bytes_raw += length
                    else:
                        self.bytes_decoded += length
        except FileNotFoundError:
            self.is_vanished = True
        except StorageError:
            self.is_unreadable = True
        return self

    def search_text(self, path: str) -> bool:
        """Search a path, and return whether anything is found."""
        self._search(View("path", iter([path.encode(errors="surrogateescape")])))
        return bool(self.findings)

    def _search(self, view: View) -> int:
        """Search a view as far as it can be read, and return its length."""
        overlap = MAX_GROWTH * self.index.longest
        is_done = np.zeros(self.index.patterns, bool)
        kept, begin = b"", 0
        for piece in self._readable(view):
            content = kept + piece
            for match in self.index.matches(content, is_done):
                self._add(view, (), match, begin + match.offset, is_done)
            for part in unescaped(content, overlap):
                for match in self.index.matches(part.content, is_done):
                    place = part.place(match.offset, self.index.length(match.pattern))
                    if place is not None:
                        self._add(view, part.names, match, begin + place, is_done)
            kept = content[-overlap:]
            begin += len(content) - len(kept)
        return begin + len(kept)

    def _readable(self, view: View) -> Iterator[bytes]:
        try:
            yield from view.pieces
        except UndecodableError:
            self.is_undecodable = True

    def _add(
        self, view: View, escapes: tuple[str, ...], match: Match, offset: int, is_done: np.ndarray
    ) -> None:
        """Add a finding; no other value of its kind in its form is searched in this view."""
        number = self.needles.kinds[match.string]
        is_done |= self.index.of_form(match.form, self.needles.kinds == number)
        kind = KINDS[number]
        form = self.index.forms[match.form].name
        words = escapes if escapes and form == RAW.name else (*escapes, form)
        self.findings.add(Finding(self.location, kind, " ".join(words), view.name, offset))


def search(places: Sequence[str], needles: Needles, *, spared: Sequence[str] = ()) -> SearchResult:
    """Search every file below some places, in every form and view, for needles.

    Args:
        places: directories and files, local or on an object store.
        needles: the strings that must be in no file.
        spared: files, and directories with all files below, that are not searched.

    Raises:
        StorageError: a place cannot be listed.
    """
    wanted = [each for each in _files_below(places) if not _is_in(each[0], spared)]
    result = SearchResult()
    for part in _parts(needles.distinct):
        result = _search_files(wanted, part, result.findings)
    return result


def texts_with(texts: Iterable[str], needles: Needles) -> set[str]:
    """The texts of some, such as paths, that contain a needle in any form."""
    naming: set[str] = set()
    for part in _parts(needles.distinct):
        for text in {*texts} - naming:
            if _FileSearch("", part, part.index).search_text(text):
                naming.add(text)
    return naming


def _search_files(
    wanted: Sequence[tuple[str, str]], needles: Needles, before: Sequence[Finding]
) -> SearchResult:
    threads = files.read_parallelism(wanted[0][0]) if wanted else 1
    index = needles.index
    searched = in_threads(
        lambda each: _FileSearch(each[0], needles, index).run(each[1]), wanted, threads
    )
    done = list(with_progress(searched, len(wanted), "searching files for what was erased"))
    return SearchResult(
        tuple(sorted({*before, *(finding for each in done for finding in each.findings)})),
        len(done),
        sum(each.bytes_raw for each in done),
        sum(each.bytes_decoded for each in done),
        tuple(each.location for each in done if each.is_undecodable),
        tuple(each.location for each in done if each.is_vanished),
        tuple(each.location for each in done if each.is_unreadable),
    )


def _parts(needles: Needles) -> Iterator[Needles]:
    """The needles in groups that one index can hold."""
    size = MAX_WINDOWS // len(FORMS)
    if len(needles) <= size:
        yield needles
        return
    for begin in range(0, len(needles), size):
        yield needles.part(begin, size)


def _files_below(places: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Location and searched path of every file at or below the places, and below what links in them point to."""
    visited: set[str] = set()
    waiting = list(places)
    while waiting:
        place = waiting.pop()
        if not files.is_remote(place):
            waiting.extend(_linked(place, visited))
        if _is_file(place):
            yield place, place.rpartition("/")[2]
            continue
        for name in files.walk(place):
            location = files.join(place, name)
            if not files.is_special(location):
                yield location, name


def _linked(place: str, visited: set[str]) -> Iterator[str]:
    """The directories outside `place` that links below it point to and that were not visited yet.

    A stream whose name has escapes links to its table, which is beside it.
    """
    inside = Path(os.path.realpath(place))
    visited.add(str(inside))
    for parent, names, _ in os.walk(place):
        for name in names:
            linked = Path(parent, name)
            target = Path(os.path.realpath(linked)) if linked.is_symlink() else None
            if target and str(target) not in visited and not target.is_relative_to(inside):
                visited.add(str(target))
                yield str(target)


def _is_file(place: str) -> bool:
    """Whether a place is a file, or a link that leads nowhere."""
    if files.is_remote(place):
        return files.length(place) is not None
    path = Path(place)
    return path.is_file() or (path.is_symlink() and not path.is_dir())


def _is_in(location: str, places: Sequence[str]) -> bool:
    return any(
        location == place or location.startswith(place.rstrip("/") + "/") for place in places
    )
