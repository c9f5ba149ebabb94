"""Files of a source with an inconclusive listing: their contents are compared with those taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import xxhash

from retention.core.wording import counted
from retention.ingest.sources.directory import (
    ListingDifference,
    Resolved,
    SourceFile,
    TakenFile,
    Wishes,
    etag_content,
)
from retention.storage import files

LINES = ("json", "csv")
"""Formats with one row per line: a file that grew has its new rows at its end."""
PACKED = (".gz", ".gzip", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".deflate", ".xz")
"""Name suffixes by which Spark decompresses a file."""
_PIECE = 4 << 20
_DIGEST = "xxh3:"


@dataclass(frozen=True)
class SourceContents:
    """The comparable contents of a source's files.

    Args:
        location: the location of the source.
        format: the format of its files.
        readable: whether this process can read them; otherwise a changed file is refused.
    """

    location: str
    format: str
    readable: bool = True

    def of(self, file: SourceFile, length: int | None = None) -> str:
        """The digest of a file, or of its first bytes; an object store's ETag; empty if neither is available.

        Raises:
            FileNotFoundError: it is gone.
            StorageError: the storage failed.
        """
        if file.etag:
            return etag_content(file.etag) if length is None else ""
        if not self.readable:
            return ""
        digest, left = xxhash.xxh3_128(), file.length if length is None else length
        for piece in pieces_of(self._place(file), 0, left):
            digest.update(piece)
        return f"{_DIGEST}{digest.hexdigest()}"

    def taken(self, file: SourceFile) -> TakenFile:
        """A file as the record keeps it."""
        return TakenFile(file.path, file.length, file.modified_ns, self.of(file), file.inode)

    def grew(self, known: TakenFile, file: SourceFile) -> bool:
        """Whether a file begins with its taken content, up to a line end, and continues after it."""
        if self.format not in LINES or file.path.endswith(PACKED) or not self.readable:
            return False
        if not known.content.startswith(_DIGEST) or file.length <= known.length:
            return False
        if self.of(file, known.length) != known.content:
            return False
        around = pieces_of(self._place(file), max(known.length - 1, 0), known.length + 1)
        seam = b"".join(around)
        return known.length == 0 or seam[:1] == b"\n" or seam[1:] in (b"\n", b"\r")

    def _place(self, file: SourceFile) -> str:
        return files.join(self.location, file.path)


def pieces_of(place: str, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file from `start` up to `end`, exclusive, in pieces.

    Raises:
        FileNotFoundError: it is gone.
        StorageError: the storage failed.
    """
    with files.reading(place) as source:
        source.seek(start)
        left = end - start
        while left > 0 and (piece := source.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece


def resolve(difference: ListingDifference, contents: SourceContents, wishes: Wishes) -> Resolved:
    """Decide about each new and each changed file.

    Raises:
        FileNotFoundError: a file was deleted after it was listed.
        StorageError: the storage failed.
    """
    resolved = Resolved()
    lost = [
        known
        for known in (*difference.gone, *(known for known, _ in difference.changed))
        if known.length > 0
    ]
    for file in difference.new:
        resolved = _with_new(resolved, file, lost, contents, wishes)
    renamed = {old for old, _ in resolved.renamed}
    for known, file in difference.changed:
        if known.path in renamed:
            resolved = resolved.with_part(file)
        else:
            resolved = _with_changed(resolved, known, file, contents, wishes)
    ordered = sorted(resolved.parts, key=lambda part: (part.file.modified_ns, part.file.path))
    return replace(resolved, parts=tuple(ordered))


def _with_new(
    resolved: Resolved,
    file: SourceFile,
    lost: Sequence[TakenFile],
    contents: SourceContents,
    wishes: Wishes,
) -> Resolved:
    """The decisions, with one for a file under a new path: it may be a taken file, renamed.

    Args:
        resolved: the decisions so far.
        file: the file.
        lost: taken files that are no longer at their paths.
        contents: of the source.
        wishes: the user's decisions.
    """
    if file.path in wishes.skip:
        return resolved.with_known(contents.taken(file))
    if file.path in wishes.take:
        return resolved.with_part(file)
    for old in lost:
        if old.length == file.length and old.content and contents.of(file) == old.content:
            if old.may_be(file):
                return resolved.with_known(contents.taken(file)).with_rename(old.path, file.path)
            return resolved.with_refusal(
                f"{file.path} has the same content as {old.path}, which was taken and no longer exists: it may be the "
                "same file, moved"
            )
        if old.length < file.length and old.may_be(file) and contents.grew(old, file):
            return resolved.with_part(file, old.length).with_rename(old.path, file.path)
    return resolved.with_part(file)


def _with_changed(
    resolved: Resolved, known: TakenFile, file: SourceFile, contents: SourceContents, wishes: Wishes
) -> Resolved:
    """The decisions, with one for a taken file that has changed."""
    if file.path in wishes.take:
        return resolved.with_part(file)
    is_same = file.length == known.length and known.content and contents.of(file) == known.content
    if is_same or file.path in wishes.skip:
        return resolved.with_known(contents.taken(file))
    if contents.grew(known, file):
        return resolved.with_part(file, known.length)
    how = "shrank" if file.length < known.length else "changed"
    how = "grew" if file.length > known.length else how
    return resolved.with_refusal(
        f"{file.path} {how} after it was taken ({counted(known.length, 'byte')} then, {file.length:,} now), and "
        "it is unclear which of its rows are new"
    )
