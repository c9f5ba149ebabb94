"""Moves of a Parquet stream's files to their logged locations: forward only, by the next process to open it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.compute as pc

from retention.errors import BusyError
from retention.ports import VersionToken
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout
from retention.stores.lease import held
from retention.stores.parquet import listing
from retention.stores.parquet.listing import Directories, ListingBasis, is_unchanged, walk
from retention.stores.parquet.log import CommitState, ParquetLog

PATIENCE_S = 5.0
"""The time, in seconds, to wait for a mover that may be paused forever; then continue without the moves."""


class Places:
    """The locations of the data files of one Parquet stream, and the moves between them."""

    def __init__(self, layout: Layout, log: ParquetLog) -> None:
        self._layout = layout
        self._log = log
        self._done = layout.engine_path("log", "moved")
        self._directories = Directories(layout)

    def staged(self, path: str) -> str:
        """The location of a file before its commit."""
        return self._layout.engine_path("staging", path)

    def trashed(self, path: str) -> str:
        """The location of a removed file until the end of the grace."""
        return self._layout.engine_path("trash", path)

    def find(self, path: str) -> str:
        """The current location of a live file; its final location if it is missing."""
        places = (self._layout.live(path), self.staged(path), self.trashed(path))
        return next((place for place in places if files.length(place) is not None), places[0])

    def finish_moves(self, known: CommitState | None = None) -> CommitState:
        """Finish the moves that commits decided; returns the newest state, read from a known one on if there is any.

        The operating system's lock makes movers take turns; a killed mover releases it at once. The newest state
        decides each file's location, so a slow mover never undoes a later commit.
        """
        state = self._log.read(known=known)
        if self._finished(state) >= state.version:
            return state
        # Readers find files at every location, so on read-only storage or with a paused mover they continue without the
        # moves.
        lock = self._layout.engine_path("moves.lock")
        with suppress(BusyError), files.if_writable(), held(lock, wait_s=PATIENCE_S):
            return self._moved_to(self._log.read(known=state))
        return state

    def _moved_to(self, state: CommitState) -> CommitState:
        """Finish the remaining moves under the lock; returns the state."""
        if self._finished(state) < state.version:
            files.move(self._moves(self._unmoved(state), state.files))
            files.replace(self._done, f"{state.version} {state.seal}".encode())
            reached(Step.MOVES_NOTED)
        return state

    @contextmanager
    def at_rest(self) -> Iterator[CommitState]:
        """Hold the lock of moves during the block, with every file at its location in the newest state.

        Raises:
            BusyError: another process moves files and does not finish in time.
        """
        with held(self._layout.engine_path("moves.lock"), wait_s=PATIENCE_S):
            yield self._moved_to(self._log.read())

    def unfinished(self, state: CommitState) -> int:
        """The number of commits with moves that are not yet noted as done."""
        return state.version - self._finished(state)

    def foreign(self, state: CommitState, since: int = 0) -> list[str]:
        """Paths of Parquet files in `messages/` that are neither live nor about to be moved out, sorted.

        Args:
            state: the state with the live files.
            since: the lowest segment base to include.
        """
        return self._unknown(walk(self._layout.messages, since=since).paths(), state)

    def newcomers(self, state: CommitState) -> list[str]:
        """The paths of `foreign`, from listing only directories that changed since their last listing."""
        if state.files.num_rows < listing.WORTH_FILES:
            return self.foreign(state)
        record = self._directories.recall()
        if record is not None and not (
            record.basis.table_id == state.table_id and self._holds(record.basis)
        ):
            record = None
        walked = walk(self._layout.messages, record)
        unknown = self._unknown(walked.paths(), state)
        # Without a stored listing, the next open lists everything again.
        with suppress(OSError):
            basis = ListingBasis(state.table_id, state.version, state.seal)
            self._directories.keep(basis, walked, unknown, record)
        return unknown

    def version_token(self) -> VersionToken | None:
        """The token that distinguishes this state from every other; None if a directory changed since its listing."""
        version, record = self._log.newest(), self._directories.recall()
        seal = self._log.seal(version)
        if record is None or seal is None or not self._holds(record.basis):
            return None
        if self._moved() != (version, seal):
            return None
        unchanged = is_unchanged(self._layout.messages, record)
        return VersionToken(version, seal, beside=record.digest) if unchanged else None

    def _holds(self, basis: ListingBasis) -> bool:
        """Whether the log still has the entry of a basis; a log restored to an earlier state has fewer files."""
        return self._log.seal(basis.version) == basis.seal

    def _unknown(self, paths: list[str], state: CommitState) -> list[str]:
        if not paths:
            return []
        present = pa.array(paths, pa.string())
        ours = pa.chunked_array(
            [*state.files["path"].chunks, pa.array(self._unmoved(state), pa.string())]
        )
        known = pc.is_in(present, value_set=ours.combine_chunks())
        return sorted(present.filter(pc.invert(known)).to_pylist())

    def _unmoved(self, state: CommitState) -> list[str]:
        """Paths in commits with moves that are not yet noted as done, sorted."""
        named: set[str] = set()
        for version in range(self._finished(state) + 1, state.version + 1):
            entry = self._log.entry(version)
            named.update(entry.remove)
            named.update(row["path"] for row in entry.add)
        return sorted(named)

    def _moves(self, touched: list[str], live: pa.Table) -> Iterator[tuple[str, str]]:
        paths = pa.array(touched, pa.string())
        alive = pc.is_in(paths, value_set=live["path"].combine_chunks()).to_pylist()
        for path, stays in zip(touched, alive, strict=True):
            final, trash = self._layout.live(path), self.trashed(path)
            yield self.staged(path), final if stays else trash
            yield (trash, final) if stays else (final, trash)

    def _finished(self, state: CommitState) -> int:
        """The version of this same log up to which all moves are done; -1 if unknown."""
        version, seal = self._moved()
        known = state.seal if version == state.version else self._log.seal(version)
        return version if seal == known else -1

    def _moved(self) -> tuple[int, str | None]:
        """The last version with its moves noted as done, and the seal of its entry."""
        version, _, seal = (
            (files.read_bytes(self._done) or b"").decode(errors="replace").partition(" ")
        )
        return (int(version), seal) if version.isdigit() else (-1, None)
