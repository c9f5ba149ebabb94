"""The backlog of a source as a value: batches, each with the position after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from retention.ingest.append import Appended
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.sources.columns import Columns
from retention.ingest.sources.delta_follow import Add
from retention.ingest.sources.directory import FilePart, SourceFile
from retention.ingest.sources.positions import DeltaPosition, DirectoryPosition, Position


def nothing() -> None:
    """Check nothing: immutable files cannot have changed."""


@dataclass(frozen=True)
class FilesBatch:
    """Files of a directory, or their appended ends, for one commit."""

    location: str
    format: str
    columns: Columns
    """The columns stored in the files themselves."""
    partitions: Mapping[str, str]
    parts: tuple[FilePart, ...]
    position: DirectoryPosition
    """The position after the batch."""
    check: Callable[[], None] = nothing
    """Raises if a file changed since it was listed."""


@dataclass(frozen=True)
class DeltaBatch:
    """Files of a Delta table for one commit."""

    location: str
    protocol: Mapping[str, object]
    metadata: Mapping[str, Any]
    adds: tuple[Add, ...]
    position: DeltaPosition
    """The position after the batch."""
    check: Callable[[], None] = nothing


Batch = FilesBatch | DeltaBatch


class SourceReader(Protocol):
    """The part of the work that needs Spark."""

    def listing(self, location: str) -> list[SourceFile]:
        """The files under a location that only Spark can reach."""
        ...

    def log(self, location: str, after: int | None, directory: str) -> None:
        """Copy the log of a Delta table at a location that only Spark can reach, from a version on, to a directory."""
        ...

    def columns(self, format_: str, places: Sequence[str]) -> Columns:
        """The combined columns of some files."""
        ...

    def append(self, batch: Batch, identify: Callable[[], BatchIdentity]) -> Appended:
        """Append the rows of a batch, once, under the identity that a function returns after all rows are read."""
        ...


@dataclass(frozen=True)
class Backlog:
    """The rows of a source to take now."""

    batches: Callable[[SourceReader], Iterator[Batch]]
    """The batches, in order."""
    has_rows: bool
    """Whether there is any batch."""
    moved: Position | None = None
    """The position before any batch, if it differs from the recorded one."""
    notes: tuple[str, ...] = ()
    """A sentence for each notice to the user."""


def no_batches(_: SourceReader) -> Iterator[Batch]:
    """An empty sequence of batches."""
    return iter(())
