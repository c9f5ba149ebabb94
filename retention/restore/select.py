"""Selection of archived messages to restore: the directory, the copies, and their sequences that are not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from retention.context.context import OpenedStream
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.seq_ranges import in_ranges, ranges_in
from retention.core.spans import Array
from retention.core.subjects import path_name
from retention.datafile.parquet import read_columns
from retention.errors import DamagedError, RefusedError, UsageError
from retention.storage import files
from retention.stores.archive_manifest import (
    ArchivedFile,
    Manifest,
    Origin,
    has_manifests,
    place_of,
    read_manifests,
)
from schemas.messages import NEVER


@dataclass(frozen=True)
class MessageRange:
    """Range of messages to restore."""

    partition: int | None = None
    """Number of the partition; None: all of them."""
    first: int = 0
    last: int = NEVER
    """Last sequence; `first` and `last` are inclusive."""


@dataclass(frozen=True)
class Archive:
    """One table's part of an archive."""

    directory: str
    origin: Origin
    is_topic: bool
    files: Sequence[ArchivedFile]
    """Archived files, each once, in order of partition, segment and lowest sequence."""


@dataclass(frozen=True)
class StoredFile:
    """A file of the table, and the bounds of its sequences, both inclusive."""

    file: DataFile
    min_seq: int
    max_seq: int


@dataclass(frozen=True)
class Part:
    """The messages to restore of one copy."""

    copy: ArchivedFile
    messages: int
    removed: Array | None = None
    """Sequences that do not come back: ascending, disjoint ranges, ends inclusive. None: only those that are hidden."""


def open_archive(place: str, stream: str, home: Origin | None) -> Archive:
    """Read the manifests of one table's archive, and check that its copies are complete.

    Args:
        place: an archive, or the directory in it of one table.
        stream: the name of the stream there.
        home: the table that the archive must be of, so that its sequences mean the same messages; None: any.

    Raises:
        UsageError: the place has nothing of that stream, or archives of several tables.
        RefusedError: the archive is of another table, or of the time before a purge.
        DamagedError: a manifest is not as it was written, or a copy is missing.
    """
    directory = place if has_manifests(place) else _of_stream(place, stream, home)
    manifests = list(read_manifests(directory))
    origins = {manifest.origin for manifest in manifests}
    if len(origins) != 1:
        raise DamagedError(
            f"{directory}: its manifests are of several tables; nothing was changed; restore them from a copy"
        )
    [origin] = origins
    if home is not None and (origin.table_id, origin.epoch) != (home.table_id, home.epoch):
        raise _elsewhere(directory, home)
    archive = Archive(directory, origin, manifests[0].is_topic, _each_once(manifests))
    _refuse_incomplete(archive)
    return archive


def _of_stream(place: str, stream: str, home: Origin | None) -> str:
    base = files.join(place, path_name(stream))
    there = [name for name in files.directories(base) if has_manifests(files.join(base, name))]
    if home is not None and there:
        if home.name not in there:
            raise _elsewhere(base, home)
        there = [home.name]
    if len(there) == 1:
        return files.join(base, there[0])
    if not there:
        raise UsageError(
            f"{place}: there is no archive of {stream}; name the place that `archive:` names in the configuration"
        )
    raise UsageError(
        f"{base}: has what several tables have left ({', '.join(there)}), in which a sequence means other messages; "
        "name the directory of one of them"
    )


def _elsewhere(place: str, home: Origin) -> RefusedError:
    return RefusedError(
        f"{home.stream}: {place} holds what another table has left, or the topic before it was purged: its sequences "
        "are those of other messages; nothing was changed; bring them back as a new stream, with --as"
    )


def _each_once(manifests: Sequence[Manifest]) -> list[ArchivedFile]:
    by_path = {copy.path: copy for manifest in manifests for copy in manifest.files}
    return sorted(
        by_path.values(), key=lambda copy: (copy.partition, copy.segment, copy.min_seq, copy.path)
    )


def _refuse_incomplete(archive: Archive) -> None:
    places = [place_of(archive.directory, copy.path) for copy in archive.files]
    lengths = files.lengths(places)
    for place, length, copy in zip(places, lengths, archive.files, strict=True):
        if length != copy.file_bytes:
            state = "is missing" if length is None else f"has {length} bytes, not {copy.file_bytes}"
            raise DamagedError(
                f"{place}: this copy of an archive {state}; nothing was changed; restore it from a copy of the archive"
            )


def matching_copies(archive: Archive, wanted: MessageRange) -> list[ArchivedFile]:
    """The copies that may hold wanted messages.

    Raises:
        UsageError: no copy does.
    """
    copies = [
        copy
        for copy in archive.files
        if wanted.partition in (None, copy.partition)
        and copy.min_seq <= wanted.last
        and copy.max_seq >= wanted.first
    ]
    if not copies:
        raise UsageError(
            f"{archive.directory}: holds no message that is asked for; nothing was changed; its manifests say which "
            "sequences it has"
        )
    return copies


def refuse_other_kind(target: OpenedStream, archive: Archive) -> None:
    """Refuse to bring a topic back as a stream, a stream as a topic, and more partitions than a topic has.

    Raises:
        RefusedError: the restore would be one of these.
    """
    if archive.is_topic != target.dialect.is_topic:
        was, instead = (
            ("a topic", "list it under `topics:`, with its partitions")
            if archive.is_topic
            else ("a stream", "name a stream")
        )
        raise RefusedError(
            f"{target.name}: {archive.origin.stream} was {was}; nothing was changed; {instead}"
        )
    most = max((copy.partition for copy in archive.files), default=0)
    if most >= target.config.partitions:
        raise RefusedError(
            f"{target.name}: {archive.origin.stream} had partition {most}, counted from 0; nothing was changed; write "
            f"partitions: {most + 1}"
        )


def select_parts(
    directory: str,
    copies: Sequence[ArchivedFile],
    there: Sequence[StoredFile],
    wanted: MessageRange,
) -> tuple[list[Part], int]:
    """Select the messages to restore of each copy, no sequence twice; count the wanted ones that are there already.

    Rows are read only where the range of a copy meets that of another copy or of a stored file, or sticks out of the
    wanted range.
    """
    selected: list[Part] = []
    already = 0
    for partition in sorted({copy.partition for copy in copies}):
        archived = [copy for copy in copies if copy.partition == partition]
        live = [stored for stored in there if stored.file.partition == partition]
        meeting = _meeting(archived, live)
        sequences = _Sequences(live)
        for copy, meets in zip(archived, meeting, strict=True):
            cut = copy.min_seq < wanted.first or copy.max_seq > wanted.last
            if not (meets or cut):
                selected.append(Part(copy, copy.messages))
                continue
            file = copy.data_file(directory)
            seqs = _seqs(replace(file, hidden=NO_RANGES))
            requested = (
                (seqs >= wanted.first)
                & (seqs <= wanted.last)
                & ~in_ranges(seqs, ranges_in(file.hidden))
            )
            present = sequences.live(copy, seqs)
            already += int((requested & present).sum())
            comes = requested & ~present & sequences.new(copy, seqs)
            sequences.take(seqs[comes])
            selected.append(Part(copy, int(comes.sum()), _ranges(seqs, ~comes)))
    return [part for part in selected if part.messages], already


class _Sequences:
    """The sequences of one partition that are stored, or that an earlier copy brings."""

    def __init__(self, there: Sequence[StoredFile]) -> None:
        self._there = there
        self._read: dict[str, Array] = {}
        self._taken: list[Array] = []

    def live(self, copy: ArchivedFile, seqs: Array) -> Array:
        """Mask of a copy's sequences that are stored."""
        mask = np.zeros(len(seqs), dtype=bool)
        for stored in self._there:
            if stored.min_seq <= copy.max_seq and stored.max_seq >= copy.min_seq:
                if stored.file.path not in self._read:
                    self._read[stored.file.path] = _seqs(stored.file)
                mask |= np.isin(seqs, self._read[stored.file.path])
        return mask

    def new(self, copy: ArchivedFile, seqs: Array) -> Array:
        """Mask of a copy's sequences that no earlier copy brings."""
        self._taken = [taken for taken in self._taken if len(taken) and taken[-1] >= copy.min_seq]
        brought = [np.isin(seqs, taken) for taken in self._taken]
        return ~np.logical_or.reduce([np.zeros(len(seqs), dtype=bool), *brought])

    def take(self, seqs: Array) -> None:
        self._taken.append(seqs)


def _meeting(copies: Sequence[ArchivedFile], there: Sequence[StoredFile]) -> Iterator[bool]:
    """Whether the range of each copy meets that of another copy, or of a stored file."""
    bounds = np.array(
        [
            *((copy.min_seq, copy.max_seq) for copy in copies),
            *((stored.min_seq, stored.max_seq) for stored in there),
        ]
    )
    order = np.argsort(bounds[:, 0], kind="stable")
    low, high = bounds[order].T
    reach = np.maximum.accumulate(high)
    meets = np.zeros(len(bounds), dtype=bool)
    meets[order[1:]] = low[1:] <= reach[:-1]
    meets[order[:-1]] |= low[1:] <= high[:-1]
    return iter(meets[: len(copies)].tolist())


def _seqs(file: DataFile) -> Array:
    seqs: Array = read_columns(file, ("seq",))[0]["seq"].to_numpy()
    return seqs


def _ranges(seqs: Array, removed: Array) -> Array:
    """Cover the removed ones of ascending `seqs` by ranges without any other: 3, 5, 8, 9 without 5 and 8 is (5, 8)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], removed, [False]]).astype(np.int8)))
    return np.stack([seqs[edges[::2]], seqs[edges[1::2] - 1]], axis=1)
