"""The locations of data files, and the files that a store staged until a commit names them or they are deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from retention.core.inventory import DataFile, slot_of
from retention.core.vector_paths import (
    VECTOR_MARK,
    VectorPlace,
    data_path,
    paths_of_slot,
    stored_files,
    under_vector,
)
from retention.errors import CommitUnknownError, RetentionError, StorageError
from retention.ports import Swap
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.checks.exclusion import refuse_without_exclusion
from retention.stores.file_paths import is_merged, kin_of, new_path
from retention.stores.layout import Layout


class FilePlaces(Protocol):
    """The locations of one table's data files. Implementations: `stores.delta.table`, `stores.parquet.settle_files`."""

    def staged(self, path: str) -> str:
        """The location of a file before its commit."""
        ...

    def find(self, path: str) -> str:
        """The current location of a live file."""
        ...

    def trashed(self, path: str) -> str | None:
        """The location of a file after its removal; None if it does not move."""
        ...


class StagedFiles:
    """The slots that one store staged and no commit has named; each attempt to fill a slot uses a new file name."""

    def __init__(self, layout: Layout, places: FilePlaces) -> None:
        self._layout = layout
        self._places = places
        self._open: set[str] = set()
        self._claims: dict[str, int] = {}
        self.claims = 0
        """The number of claims on staged files in the newest known state of the table."""

    def stage(
        self, partition: int, segment: int, count: int, *, merged: bool
    ) -> tuple[DataFile, ...]:
        """New files of a segment, as `Store.stage`; the names of merged ones keep them from being merged again soon."""
        kin = None if count == 1 else uuid.uuid4().hex
        paths = (new_path(partition, segment, kin, merged=merged) for _ in range(count))
        return tuple(self._new(path, partition, segment) for path in paths)

    def stage_copy(self, source: DataFile) -> DataFile:
        """A new file to replace `source`, named as one of its kin."""
        path = new_path(
            source.partition,
            source.segment,
            kin_of(source.path),
            merged=is_merged(source.path),
        )
        return self._new(path, source.partition, source.segment)

    def stage_vector(self, source: DataFile) -> DataFile:
        """The source under a new vector, to replace `source`."""
        path = under_vector(data_path(source.path), VectorPlace(uuid.uuid4().hex, 1))
        return self._new(path, source.partition, source.segment)

    def _new(self, path: str, partition: int, segment: int) -> DataFile:
        refuse_without_exclusion(self._layout.root)
        self._open.add(slot_of(path))
        self._claims[slot_of(path)] = self.claims
        location = self._places.staged(path)
        files.make_directory(location.rpartition("/")[0])
        return self._layout.data_file((path, partition, segment), location)

    def unclaimed(self, swap: Swap) -> Swap:
        """The swap, with the requirement that no staged file was claimed since its own were staged.

        Only the store knows the count at which it staged them, and adding the requirement here means that no writer can
        forget it.
        """
        counts = (self._claims.get(slot_of(path)) for path in swap.add["path"].to_pylist())
        count = min((count for count in counts if count is not None), default=None)
        if count is None:
            return swap
        from retention.core.table_requirements import AssertStagingClaims

        return replace(swap, requirements=[*swap.requirements, AssertStagingClaims(count)])

    @contextmanager
    def settling(self, paths: Iterable[str]) -> Iterator[None]:
        """Wrap a commit of staged paths: they remain deletable only if it certainly did not happen."""
        named = self._open.intersection(map(slot_of, paths))
        self._open -= named
        try:
            yield
        except (CommitUnknownError, StorageError):
            raise
        except RetentionError:
            self._open |= named
            raise
        for slot in named:
            del self._claims[slot]

    def discard(self, paths: Sequence[str]) -> None:
        """Delete every attempt's files for those of `paths` that were staged here and are certainly in no commit."""
        slots = sorted(self._open.intersection(map(slot_of, paths)))
        self._open.difference_update(slots)
        for slot in slots:
            self._claims.pop(slot, None)
        written = [path for slot in slots for path in self._written(slot)]
        # The last stored file of a path is the staged one: the data file under a new vector is live.
        files.delete(self._places.staged(stored_files(path)[-1]) for path in written)
        files.delete(self._layout.engine_path("subjects", path) for path in written)
        reached(Step.STAGED_DISCARDED)

    def _written(self, slot: str) -> list[str]:
        if VECTOR_MARK in slot:
            return paths_of_slot(slot, files.names(self._layout.messages))
        directory, _, beginning = slot.rpartition("/")
        names = files.names(self._places.staged(directory))
        return [f"{directory}/{name}" for name in names if name.startswith(beginning)]
