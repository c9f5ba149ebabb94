"""Selection of archived messages to restore: the copies, and their missing sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from retention.context.context import OpenedStream
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.seq_ranges import in_ranges, ranges_in
from retention.core.spans import Array
from retention.datafile.parquet import read_columns
from retention.errors import RefusedError, UsageError
from retention.restore.left_out import refused_histories
from retention.restore.open_archive import Archive
from retention.schemas.deadlines import NEVER
from retention.stores.archive_manifest import ArchivedFile


@dataclass(frozen=True)
class MessageRange:
    """Range of messages to restore."""

    partition: int | None = None
    """Number of the partition; None: all of them."""
    first: int = 0
    last: int = NEVER
    """Last sequence; `first` and `last` are inclusive."""

    def may_be_in(self, copy: ArchivedFile) -> bool:
        """Whether a copy may have messages of the range."""
        inside = copy.min_seq <= self.last and copy.max_seq >= self.first
        return inside and self.partition in (None, copy.partition)


@dataclass(frozen=True)
class StoredFile:
    """A file of the table, and the bounds of its sequences, both inclusive."""

    file: DataFile
    min_seq: int
    max_seq: int


@dataclass(frozen=True)
class CopyPart:
    """The messages to restore from one copy."""

    copy: ArchivedFile
    messages: int
    removed: Array | None = None
    """Sequences not to restore: ascending, disjoint ranges, ends inclusive. None: only the hidden ones."""


def matching_copies(archive: Archive, wanted: MessageRange) -> list[ArchivedFile]:
    """The copies that may have wanted messages.

    Raises:
        UsageError: no copy has any.
        RefusedError: only manifests of other histories name some.
    """
    copies = [copy for copy in archive.files if wanted.may_be_in(copy)]
    if not copies:
        others = [
            manifest
            for manifest in archive.others
            if any(map(wanted.may_be_in, manifest.content.files))
        ]
        if others:
            raise refused_histories(archive.origin.stream, others)
        raise UsageError(
            f"{archive.directory}: holds no message that is asked for; nothing was changed; its manifests say which "
            "sequences it has"
        )
    return copies


def refuse_other_kind(target: OpenedStream, archive: Archive) -> None:
    """Refuse to restore a topic as a stream, a stream as a topic, or more partitions than a topic has.

    Raises:
        RefusedError: the restore would do one of these.
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
    withdrawn: Mapping[int, Array],
) -> tuple[list[CopyPart], int]:
    """Select the messages to restore from each copy, no sequence twice; count the wanted ones that already exist.

    Rows are read only if the range of a copy overlaps that of another copy, of a stored file or of withdrawn markers,
    or exceeds the wanted range.

    Args:
        directory: the archive's directory of the table.
        copies: the copies that may have wanted messages, in any order.
        there: the table's files.
        wanted: the messages to restore.
        withdrawn: partition → the sequences of markers that are not restored, from `withdrawn_markers`.
    """
    selected: list[CopyPart] = []
    already = 0
    for partition in sorted({copy.partition for copy in copies}):
        archived = sorted(
            (copy for copy in copies if copy.partition == partition),
            key=lambda copy: (copy.min_seq, copy.path),
        )
        live = [stored for stored in there if stored.file.partition == partition]
        meeting = _meeting(archived, live)
        sequences = _Sequences(live)
        away = withdrawn.get(partition, NO_RANGES)
        for copy, meets in zip(archived, meeting, strict=True):
            cut = copy.min_seq < wanted.first or copy.max_seq > wanted.last
            has_withdrawn = np.any((away[:, 0] <= copy.max_seq) & (away[:, 1] >= copy.min_seq))
            if not (meets or cut or has_withdrawn):
                selected.append(CopyPart(copy, copy.messages))
                continue
            file = copy.data_file(directory)
            seqs = _seqs(replace(file, hidden=NO_RANGES))
            requested = (
                (seqs >= wanted.first)
                & (seqs <= wanted.last)
                & ~in_ranges(seqs, ranges_in(file.hidden))
                & ~in_ranges(seqs, away)
            )
            present = sequences.live(copy, seqs)
            already += int((requested & present).sum())
            comes = requested & ~present & sequences.new(copy, seqs)
            sequences.take(seqs[comes])
            selected.append(CopyPart(copy, int(comes.sum()), _ranges(seqs, ~comes)))
    return [part for part in selected if part.messages], already


class _Sequences:
    """The sequences of one partition that are stored, or that an earlier copy restores."""

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
        """Mask of a copy's sequences that no earlier copy restores; copies are asked in order of `min_seq`."""
        self._taken = [taken for taken in self._taken if len(taken) and taken[-1] >= copy.min_seq]
        brought = [np.isin(seqs, taken) for taken in self._taken]
        return ~np.logical_or.reduce([np.zeros(len(seqs), dtype=bool), *brought])

    def take(self, seqs: Array) -> None:
        self._taken.append(seqs)


def _meeting(copies: Sequence[ArchivedFile], there: Sequence[StoredFile]) -> Iterator[bool]:
    """Whether the range of each copy overlaps that of another copy, or of a stored file."""
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
    """Cover the removed ones of ascending `seqs` by ranges without any others: 3, 5, 8, 9 without 5 and 8 is (5, 8)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], removed, [False]]).astype(np.int8)))
    return np.stack([seqs[edges[::2]], seqs[edges[1::2] - 1]], axis=1)
