"""What of an archive is to come back: which directory, which files, and which of their sequences nobody has yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from retention.context.context import OpenedStream
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.seq_ranges import in_ranges
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
class Wanted:
    """Which messages are asked for."""

    partition: int | None = None
    """None: those of all."""
    first: int = 0
    last: int = NEVER
    """Both inclusive."""


@dataclass(frozen=True)
class Archive:
    """What one table has left in an archive."""

    directory: str
    origin: Origin
    is_topic: bool
    files: Sequence[ArchivedFile]
    """Each once, in order of partition, segment and lowest sequence."""


@dataclass(frozen=True)
class There:
    """A file that the table has, and the bounds of its sequences."""

    file: DataFile
    min_seq: int
    max_seq: int


@dataclass(frozen=True)
class Part:
    """What comes back of one copy."""

    copy: ArchivedFile
    messages: int
    removed: Array | None = None
    """Sequences of it that do not: ascending, disjoint ranges, both ends inclusive. None: those that are hidden."""


def open_archive(place: str, stream: str, home: Origin | None) -> Archive:
    """Read the manifests of what one table has left.

    Args:
        place: an archive, or the directory in it of one table.
        stream: what it was called there.
        home: the table that it must come from, so that its sequences mean the same messages; None: any.

    Raises:
        UsageError: nothing of that stream is there, or what several tables have left.
        RefusedError: it comes from another table, or from before a purge.
        DamagedError: a manifest is not what was written, or a copy is missing.
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
    found = Archive(directory, origin, manifests[0].is_topic, _each_once(manifests))
    _refuse_incomplete(found)
    return found


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
    by_path = {one.path: one for manifest in manifests for one in manifest.files}
    return sorted(
        by_path.values(), key=lambda one: (one.partition, one.segment, one.min_seq, one.path)
    )


def _refuse_incomplete(archive: Archive) -> None:
    places = [place_of(archive.directory, one.path) for one in archive.files]
    lengths = files.lengths(places)
    for place, length, one in zip(places, lengths, archive.files, strict=True):
        if length != one.file_bytes:
            state = "is missing" if length is None else f"has {length} bytes, not {one.file_bytes}"
            raise DamagedError(
                f"{place}: this copy of an archive {state}; nothing was changed; restore it from a copy of the archive"
            )


def chosen(archive: Archive, wanted: Wanted) -> list[ArchivedFile]:
    """The files that may hold what is asked for.

    Raises:
        UsageError: none does.
    """
    found = [
        one
        for one in archive.files
        if wanted.partition in (None, one.partition)
        and one.min_seq <= wanted.last
        and one.max_seq >= wanted.first
    ]
    if not found:
        raise UsageError(
            f"{archive.directory}: holds no message that is asked for; nothing was changed; its manifests say which "
            "sequences it has"
        )
    return found


def refuse_other_kind(target: OpenedStream, archive: Archive) -> None:
    """Refuse to bring a topic back as a stream, a stream as a topic, and more partitions than a topic has.

    Raises:
        RefusedError: it is one of these.
    """
    if archive.is_topic != (target.config.topic is not None):
        was, instead = (
            ("a topic", "list it under `topics:`, with its partitions")
            if archive.is_topic
            else ("a stream", "name a stream")
        )
        raise RefusedError(
            f"{target.name}: {archive.origin.stream} was {was}; nothing was changed; {instead}"
        )
    most = max((one.partition for one in archive.files), default=0)
    if most >= target.config.partitions:
        raise RefusedError(
            f"{target.name}: {archive.origin.stream} had partition {most}, counted from 0; nothing was changed; write "
            f"partitions: {most + 1}"
        )


def parts(
    directory: str, copies: Sequence[ArchivedFile], there: Sequence[There], wanted: Wanted
) -> tuple[list[Part], int]:
    """What comes back of each copy, no sequence twice; and how many messages that are asked for are there already.

    Rows are read only where ranges meet, of copies, of files that are there, or of a copy and the end of what is asked.
    """
    found: list[Part] = []
    already = 0
    for partition in sorted({one.partition for one in copies}):
        mine = [one for one in copies if one.partition == partition]
        live = [one for one in there if one.file.partition == partition]
        meeting = _meeting(mine, live)
        sequences = _Sequences(live)
        for copy, meets in zip(mine, meeting, strict=True):
            cut = copy.min_seq < wanted.first or copy.max_seq > wanted.last
            if not (meets or cut):
                found.append(Part(copy, copy.messages))
                continue
            file = copy.data_file(directory)
            seqs = _seqs(replace(file, hidden=NO_RANGES))
            asked = (seqs >= wanted.first) & (seqs <= wanted.last) & ~in_ranges(seqs, file.hidden)
            held = sequences.live(copy, seqs)
            already += int((asked & held).sum())
            comes = asked & ~held & sequences.new(copy, seqs)
            sequences.take(seqs[comes])
            found.append(Part(copy, int(comes.sum()), _ranges(seqs, ~comes)))
    return [part for part in found if part.messages], already


class _Sequences:
    """The sequences of one partition that are there, or that a copy before has brought."""

    def __init__(self, there: Sequence[There]) -> None:
        self._there = there
        self._read: dict[str, Array] = {}
        self._taken: list[Array] = []

    def live(self, copy: ArchivedFile, seqs: Array) -> Array:
        """Which of a copy's are there; a mask."""
        found = np.zeros(len(seqs), dtype=bool)
        for one in self._there:
            if one.min_seq <= copy.max_seq and one.max_seq >= copy.min_seq:
                if one.file.path not in self._read:
                    self._read[one.file.path] = _seqs(one.file)
                found |= np.isin(seqs, self._read[one.file.path])
        return found

    def new(self, copy: ArchivedFile, seqs: Array) -> Array:
        """Which of a copy's no copy before has brought; a mask."""
        self._taken = [one for one in self._taken if len(one) and one[-1] >= copy.min_seq]
        brought = [np.isin(seqs, one) for one in self._taken]
        return ~np.logical_or.reduce([np.zeros(len(seqs), dtype=bool), *brought])

    def take(self, seqs: Array) -> None:
        self._taken.append(seqs)


def _meeting(copies: Sequence[ArchivedFile], there: Sequence[There]) -> Iterator[bool]:
    """Whether the range of each copy meets that of another one, or of a file that is there."""
    bounds = np.array(
        [
            *((one.min_seq, one.max_seq) for one in copies),
            *((one.min_seq, one.max_seq) for one in there),
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
    found: Array = read_columns(file, ("seq",))[0]["seq"].to_numpy()
    return found


def _ranges(seqs: Array, gone: Array) -> Array:
    """The ranges that cover those of the ascending `seqs` that are gone, and no other of them."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], gone, [False]]).astype(np.int8)))
    return np.stack([seqs[edges[::2]], seqs[edges[1::2] - 1]], axis=1)
