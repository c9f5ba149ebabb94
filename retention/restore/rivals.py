"""Conflicts in an archive: manifests that name different bytes for one file, or different messages for one sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from retention.apply.archive import digest_of
from retention.core.inventory import NO_RANGES, DataFile
from retention.core.spans import Array
from retention.datafile.content_digest import ContentDigest
from retention.datafile.parquet import read_columns
from retention.datafile.row_groups import COLUMNS, pick_rows, rows_in_order, with_time
from retention.errors import DamagedError, RefusedError
from retention.stores.archive_manifest import ArchivedFile, StoredManifest

_COMPARED_AT_ONCE = 1_024


def newest_of_each(manifests: Iterable[StoredManifest]) -> dict[str, tuple[ArchivedFile, str]]:
    """Path → the copy as the newest manifest names it, and the location of that manifest.

    Raises:
        RefusedError: two manifests name different bytes for one path.
    """
    newest: dict[str, tuple[ArchivedFile, str]] = {}
    for manifest in sorted(manifests, key=lambda file: (file.content.as_of_ns, file.location)):
        for copy in manifest.content.files:
            known, location = newest.get(copy.path, (copy, manifest.location))
            if known.sha256 != copy.sha256:
                raise _rivals(location, manifest.location, what=f"other bytes for {copy.path}")
            newest[copy.path] = copy, manifest.location
    return newest


def refuse_rivals(
    directory: str, copies: Sequence[ArchivedFile], manifest_of: Mapping[str, str]
) -> None:
    """Refuse copies that hold different messages under one sequence.

    Only copies with overlapping ranges of sequences are read.

    Args:
        directory: the archive's directory of one table.
        copies: in order of partition, and of the lowest sequence within it.
        manifest_of: path → the location of the manifest that names the copy.

    Raises:
        RefusedError: naming the manifests of two such copies, and the sequence.
        DamagedError: a copy differs from the archived file.
    """
    for copy, other, common in _meetings(directory, copies):
        pair = [_whole(directory, archived) for archived in (copy, other)]
        first, second = (_digest(file, common) for file in pair)
        if first == second:
            continue
        for file, archived in zip(pair, (copy, other), strict=True):
            _refuse_damaged(file, archived)
        seq = _first_difference(pair, common)
        raise _rivals(
            manifest_of[other.path],
            manifest_of[copy.path],
            what=f"another message as sequence {seq:,}",
        )


def _meetings(
    directory: str, copies: Sequence[ArchivedFile]
) -> Iterator[tuple[ArchivedFile, ArchivedFile, Array]]:
    """Copies that share sequences with an earlier copy, that copy, and the sequences, each once per copy."""
    for _, inside in groupby(copies, key=lambda copy: copy.partition):
        open_: list[ArchivedFile] = []
        seqs: dict[str, Array] = {}
        for copy in sorted(inside, key=lambda copy: (copy.min_seq, copy.path)):
            open_ = [other for other in open_ if other.max_seq >= copy.min_seq]
            for path in seqs.keys() - {other.path for other in open_}:
                del seqs[path]
            left = None
            for other in open_:
                for archived in (copy, other):
                    if archived.path not in seqs:
                        seqs[archived.path] = _seqs(directory, archived)
                left = seqs[copy.path] if left is None else left
                common = np.intersect1d(left, seqs[other.path], assume_unique=True)
                if len(common):
                    yield copy, other, common
                    left = np.setdiff1d(left, common, assume_unique=True)
            open_.append(copy)


def _whole(directory: str, copy: ArchivedFile) -> DataFile:
    """A copy including the messages released before."""
    return replace(copy.data_file(directory), hidden=NO_RANGES)


def _seqs(directory: str, copy: ArchivedFile) -> Array:
    seqs: Array = read_columns(_whole(directory, copy), ("seq",))[0]["seq"].to_numpy()
    return seqs


def _digest(file: DataFile, seqs: Array) -> str:
    digest = ContentDigest()
    for rows in rows_in_order(file, COLUMNS):
        common = np.isin(rows["seq"].to_numpy(), seqs)
        digest.update(with_time(rows.filter(pa.array(common))))
    return digest.value


def _first_difference(pair: Sequence[DataFile], seqs: Array) -> int:
    for start in range(0, len(seqs), _COMPARED_AT_ONCE):
        some = seqs[start : start + _COMPARED_AT_ONCE]
        first, second = (pick_rows(file, some, COLUMNS).to_pylist() for file in pair)
        for row, other in zip(first, second, strict=True):
            if row != other:
                return int(row["seq"])
    return int(seqs[0])


def _refuse_damaged(file: DataFile, copy: ArchivedFile) -> None:
    if digest_of(file) != copy.sha256:
        raise DamagedError(
            f"{file.location}: this copy of an archive is not what was copied (its SHA-256 differs from the "
            "manifest's); nothing was changed; restore it from a copy of the archive"
        )


def _rivals(first: str, second: str, *, what: str) -> RefusedError:
    return RefusedError(
        f"{first} and {second} name {what}: they are of two histories of one table; nothing was changed; name the "
        "manifest of the one that is meant, with --from MANIFEST --as NEWNAME, or move the other's manifests away"
    )
