"""A Delta table as a source: the rows to take now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import unquote

from retention.core.wording import counted
from retention.errors import RefusedError
from retention.ingest.sources.backlog import Backlog, Batch, DeltaBatch, SourceReader, no_batches
from retention.ingest.sources.batches import batches_of
from retention.ingest.sources.columns import contradictions
from retention.ingest.sources.delta_follow import Add, Commit, DeltaFiles, follow, hidden_rows
from retention.ingest.sources.delta_log import DeltaLog, DeltaTableState, refuse_catalogs
from retention.ingest.sources.directory import Wishes
from retention.ingest.sources.positions import DeltaPosition
from retention.storage import files

COLUMNS = "columns"
"""The word for `--take` to continue with the source's present columns."""
TABLE = "table"
"""The word for `--take` and `--skip` where another table replaced the source."""


@dataclass(frozen=True)
class DeltaSource:
    """A Delta table followed by the versions of its log."""

    location: str
    wishes: Wishes
    log: DeltaLog
    """The table's log, or a copy of it."""

    def backlog(self, known: DeltaPosition | None) -> Backlog:
        """Find the rows to take.

        Args:
            known: the position up to which the source was taken; None: it never was.

        Raises:
            UsageError: it is not a Delta table.
            RefusedError: the new rows of a version cannot be determined, another table replaced the source, or a column
                is missing or has another type.
            DamagedError: the log cannot be read.
        """
        log = self.log
        newest = log.newest()
        if known is None:
            return self._first(log, newest)
        if self._is_another(log, newest, known):
            return self._other(log, newest, known)
        if newest == known.version:
            return self._with(known, is_moved=False, notes=())
        if log.missing(known.version, newest):
            return self._without_entries(log, newest, known)
        return self._on(log, newest, known)

    def taken_until(self, table_id: str, version: int) -> DeltaPosition:
        """The position of an earlier release that took everything up to a version.

        Raises:
            RefusedError: another table is there.
            DamagedError: the log does not reach back to that version.
        """
        log = self.log
        state = log.state(version)
        if str(state.metadata["id"]) != table_id:
            raise self._another()
        taken = {path: hidden_rows(add) for path, add in state.live.items()}
        return _position(log, state, DeltaFiles({}, taken))

    def _first(self, log: DeltaLog, newest: int) -> Backlog:
        state = log.state(newest)
        position = _position(log, state, DeltaFiles(dict(state.live), {}))
        return self._with(position, is_moved=False, notes=())

    def _on(self, log: DeltaLog, newest: int, known: DeltaPosition) -> Backlog:
        """Continue with the entries of the log."""
        commits = log.commits(known.version, newest)
        followed = follow(known.files, commits, self.wishes)
        if followed.refused:
            raise RefusedError(
                f"{self.location}: {'; '.join(followed.refused[:3])}; nothing was read; run once with the "
                "option that is right"
            )
        protocol, metadata = _last(known, commits)
        position = replace(
            known,
            version=newest,
            seal=log.seal(newest),
            protocol=protocol,
            metadata=metadata,
            files=followed.files,
        )
        self._refuse_columns(known, position)
        return self._with(position, is_moved=True, notes=followed.notes)

    def _without_entries(self, log: DeltaLog, newest: int, known: DeltaPosition) -> Backlog:
        """Continue where entries are missing from the log: only previously taken files are certain."""
        state = log.state(newest)
        files = DeltaFiles(dict(known.files.pending), dict(known.files.taken))
        unknown = {
            path: add
            for path, add in state.live.items()
            if path not in files.taken and path not in files.pending
        }
        wish = str(newest)
        if wish in self.wishes.take or not unknown:
            waiting = {path: add for path, add in files.pending.items() if path in state.live}
            files.pending = waiting | unknown
        elif wish in self.wishes.skip:
            files.taken |= {path: hidden_rows(add) for path, add in unknown.items()}
        else:
            raise RefusedError(
                f"{self.location}: its log no longer has the entries of some versions between {known.version}, up to "
                f"which it was taken, and {newest} (they were cleaned up), so that it is unclear whether the rows "
                f"of {counted(len(unknown), 'file')} are new or rewritten; nothing was read; run once with --take "
                f"{newest} to take all of them as new, or --skip {newest} to count them as taken, and run more "
                "often than delta.logRetentionDuration"
            )
        position = _position(log, state, files)
        self._refuse_columns(known, position)
        return self._with(position, is_moved=True, notes=())

    def _is_another(self, log: DeltaLog, newest: int, known: DeltaPosition) -> bool:
        """Whether the table is not the one that was taken, or was restored to an earlier version."""
        if newest < known.version:
            return True
        seal = log.seal(known.version)
        if seal:
            return seal != known.seal
        return str(log.state(newest).metadata["id"]) != known.table_id

    def _other(self, log: DeltaLog, newest: int, known: DeltaPosition) -> Backlog:
        state = log.state(newest)
        if TABLE in self.wishes.take:
            return self._first(log, newest)
        if TABLE in self.wishes.skip:
            taken = {path: hidden_rows(add) for path, add in state.live.items()}
            position = _position(log, state, DeltaFiles({}, {**known.files.taken, **taken}))
            return self._with(position, is_moved=True, notes=())
        raise self._another()

    def _another(self) -> RefusedError:
        return RefusedError(
            f"{self.location}: this is not the table that was taken before: it was recreated, or restored from a copy; "
            "nothing was read; run once with --take table to take all of its rows as new, or --skip table to count all "
            "existing rows as taken"
        )

    def _refuse_columns(self, known: DeltaPosition, position: DeltaPosition) -> None:
        phrases = contradictions(known.columns, position.columns)
        if phrases and COLUMNS not in self.wishes.take:
            raise RefusedError(
                f"{self.location}: {'; '.join(phrases)} since the source was first taken; nothing was read; correct "
                "--column where it names one of them, and run once with --take columns"
            )

    def _with(self, position: DeltaPosition, *, is_moved: bool, notes: Sequence[str]) -> Backlog:
        refuse_catalogs(self.location, position.protocol)
        skipped = {
            path: hidden_rows(add)
            for path, add in position.files.pending.items()
            if not self.wishes.skip.isdisjoint((path, unquote(path), self._place(path)))
        }
        if skipped:
            left = {
                path: add for path, add in position.files.pending.items() if path not in skipped
            }
            position = replace(position, files=DeltaFiles(left, position.files.taken | skipped))
            is_moved = True
        pending = bool(position.files.pending)
        return Backlog(
            partial(self._batches, position) if pending else no_batches,
            has_rows=pending,
            moved=position if is_moved and not pending else None,
            notes=tuple(f"{self.location}: {note}" for note in notes),
        )

    def _place(self, path: str) -> str:
        """The location of a file that the log names."""
        return files.join(self.location, unquote(path))

    def _batches(self, position: DeltaPosition, _: SourceReader) -> Iterator[Batch]:
        ordered = sorted(position.files.pending.values(), key=_written)
        for adds in batches_of(ordered, lambda add: int(add.get("size") or 0)):
            taken = {add["path"]: hidden_rows(add) for add in adds}
            left = {path: add for path, add in position.files.pending.items() if path not in taken}
            position = replace(position, files=DeltaFiles(left, {**position.files.taken, **taken}))
            yield DeltaBatch(
                self.location, position.protocol, position.metadata, tuple(adds), position
            )


def _position(log: DeltaLog, state: DeltaTableState, files: DeltaFiles) -> DeltaPosition:
    return DeltaPosition(
        state.version, log.seal(state.version), state.protocol, state.metadata, files
    )


def _last(known: DeltaPosition, commits: Sequence[Commit]) -> tuple[dict, dict]:  # type: ignore[type-arg]
    protocol, metadata = dict(known.protocol), dict(known.metadata)
    for commit in commits:
        protocol = dict(commit.protocol or protocol)
        metadata = dict(commit.metadata or metadata)
    return protocol, metadata


def _written(add: Add) -> tuple[int, str]:
    return int(add.get("modificationTime") or 0), add["path"]
