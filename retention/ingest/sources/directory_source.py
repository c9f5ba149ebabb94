"""A directory of files as a source: the rows to take now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from retention.core.wording import counted
from retention.errors import BusyError, RefusedError, UsageError
from retention.ingest.sources.backlog import Backlog, Batch, FilesBatch, SourceReader, no_batches
from retention.ingest.sources.batches import batches_of
from retention.ingest.sources.columns import with_added, without
from retention.ingest.sources.contents import SourceContents, resolve
from retention.ingest.sources.directory import (
    FilePart,
    Resolved,
    SourceFile,
    TakenFile,
    Wishes,
    compare,
)
from retention.ingest.sources.partitions import kinds_of, refusal_of
from retention.ingest.sources.positions import DirectoryPosition
from retention.storage import files
from retention.storage.parallel import in_threads
from retention.stores.delta import internals

_DECIDE = (
    "restore the file as it was taken and put new rows into files of their own, or run once with --skip FILE to count "
    "it as taken as it is, or with --take FILE to take all of its rows as new"
)
_SHOWN = 3
_THREADS = 8
_SECOND_MS = 1_000


@dataclass(frozen=True)
class DirectorySource:
    """A directory, and how its files are compared with the taken ones."""

    location: str
    format: str
    contents: SourceContents
    wishes: Wishes

    def backlog(self, listing: Sequence[SourceFile], known: DirectoryPosition | None) -> Backlog:
        """Find the rows to take.

        Args:
            listing: all files present.
            known: the position up to which the source was taken; None: it never was.

        Raises:
            UsageError: it is a Delta table.
            RefusedError: the new rows of a file cannot be determined, or it does not match the earlier files.
        """
        if any(internals.is_in_log(file.path) for file in listing):
            raise UsageError(
                f"{self.location} is a Delta table, and some of its files may have rows that it no longer has; nothing "
                "was read; give --source-format delta"
            )
        before = known or DirectoryPosition(self.format, None, {})
        self._refuse_format(before)
        difference = compare(listing, before.files)
        notes = _unfinished(difference.unfinished)
        if difference.is_empty:
            return Backlog(no_batches, has_rows=False, notes=notes)
        with self._unvanished():
            resolved = resolve(difference, self.contents, self.wishes)
        self._refuse(resolved.refused, _DECIDE)
        paths = (part.file.path for part in resolved.parts)
        kinds = before.partitions if before.files else kinds_of(paths)
        self._refuse_unfit(resolved.parts, kinds)
        renamed = {old for old, _ in resolved.renamed}
        kept = {path: file for path, file in before.files.items() if path not in renamed}
        files_now = {**kept, **{file.path: file for file in resolved.known}}
        position = replace(before, files=files_now, partitions=kinds)
        notes += tuple(
            f"{old} was renamed to {new}: its rows were taken before and are not taken again"
            for old, new in resolved.renamed
        )
        return Backlog(
            partial(self._batches, position, resolved),
            has_rows=bool(resolved.parts),
            moved=position if resolved.known else None,
            notes=notes,
        )

    def _batches(
        self, position: DirectoryPosition, resolved: Resolved, reader: SourceReader
    ) -> Iterator[Batch]:
        wanted = [part for part in resolved.parts if part.length]
        position = self._with_columns(position, [part.file for part in wanted], reader)
        for parts in batches_of(resolved.parts, lambda part: part.length):
            with self._unvanished():
                taken = list(
                    in_threads(self.contents.taken, [part.file for part in parts], _THREADS)
                )
            position = replace(
                position, files={**position.files, **{file.path: file for file in taken}}
            )
            yield FilesBatch(
                self.location,
                self.format,
                position.columns or {"type": "struct", "fields": []},
                position.partitions,
                tuple(part for part in parts if part.length),
                position,
                partial(self._check, [part.file for part in parts]),
            )

    def _with_columns(
        self, position: DirectoryPosition, new: Sequence[SourceFile], reader: SourceReader
    ) -> DirectoryPosition:
        """The position, with the columns of new files added to those already fixed."""
        if not new:
            return position
        known = [] if position.columns else position.files.values()
        unread = [file.path for file in known if file.length > 0]
        places = [
            files.join(self.location, path) for path in [*unread, *(file.path for file in new)]
        ]
        present = without(reader.columns(self.format, places), position.partitions)
        columns = present if position.columns is None else with_added(position.columns, present)
        return replace(position, columns=columns)

    def _check(self, listed: Sequence[SourceFile]) -> None:
        """Refuse to commit rows of files that changed while they were read.

        Raises:
            BusyError: one did.
        """
        if not self.contents.readable:
            return
        # The store gives the time of a single object in whole seconds.
        exact_ms = _SECOND_MS if files.is_remote(self.location) else 1
        for file, now in zip(listed, in_threads(self._stat, listed, _THREADS), strict=True):
            known = (file.length, file.modified_ns // 1_000_000 // exact_ms)
            if now is None or (now[0], now[1] // exact_ms) != known:
                what = "was deleted" if now is None else "was written to"
                raise BusyError(
                    f"{self.location}: {file.path} {what} while it was read; nothing of its batch was taken; run it "
                    "again, best while no other process writes there"
                )

    @contextmanager
    def _unvanished(self) -> Iterator[None]:
        """Read files in the block that may have been deleted since they were listed.

        Raises:
            BusyError: one was.
        """
        try:
            yield
        except FileNotFoundError as error:
            raise BusyError(
                f"{self.location}: a file was deleted after it was listed ({error}); nothing more was taken; run it "
                "again"
            ) from error

    def _stat(self, file: SourceFile) -> tuple[int, int] | None:
        try:
            return files.stat(files.join(self.location, file.path))
        except FileNotFoundError:
            return None

    def _refuse_format(self, before: DirectoryPosition) -> None:
        if before.format != self.format:
            raise RefusedError(
                f"{self.location} was taken as {before.format} before; nothing was read; give --source-format "
                f"{before.format}"
            )

    def _refuse_unfit(self, parts: Sequence[FilePart], kinds: Mapping[str, str]) -> None:
        reasons = (refusal_of(part.file.path, kinds) for part in parts)
        self._refuse(
            [reason for reason in reasons if reason],
            "move the file to where its directories are those of the others, or run once with --skip FILE to skip it",
        )

    def _refuse(self, reasons: Sequence[str], remedy: str) -> None:
        if not reasons:
            return
        more = f", and {len(reasons) - _SHOWN:,} more files" if len(reasons) > _SHOWN else ""
        raise RefusedError(
            f"{self.location}: {'; '.join(reasons[:_SHOWN])}{more}; nothing was read; {remedy}"
        )


def converted(
    location: str, format_: str, listing: Sequence[SourceFile], taken: Mapping[str, int]
) -> DirectoryPosition:
    """The position of an earlier release in a directory.

    Args:
        location: the source's.
        format_: of its files.
        listing: all files present.
        taken: location of each taken file → time of its last change when it was taken, milliseconds since the epoch.
    """
    root = location if "://" in location else str(Path(location).resolve())
    there = {file.path: file for file in listing}
    known = {}
    for place, modified_ms in taken.items():
        path = place.removeprefix(f"{root.rstrip('/')}/")
        file = there.get(path)
        if file is not None and file.modified_ns // 1_000_000 == modified_ms:
            known[path] = TakenFile(path, file.length, file.modified_ns, inode=file.inode)
        else:
            known[path] = TakenFile(path, -1, modified_ms * 1_000_000)
    return DirectoryPosition(format_, None, kinds_of(known, as_spark=True), known)


def _unfinished(paths: Sequence[str]) -> tuple[str, ...]:
    if not paths:
        return ()
    return (
        f"{counted(len(paths), 'file was', 'files were')} skipped, named like writes in progress ({paths[0]}); rename "
        "complete files",
    )
