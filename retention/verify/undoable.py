"""Checks of everything that an undo needs: the records of runs, and the files that they removed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from retention.apply.reclaim.survey import dead_files
from retention.apply.undo_records import kept_runs, read_record
from retention.context.run_files import RANGES, REMOVED, undo_location
from retention.core.inventory import DataFile
from retention.core.reclaim import DeadFile, Reason
from retention.core.spoken_commands import command
from retention.core.vector_paths import data_path
from retention.datafile.subject_digest import digest_at
from retention.errors import DamagedError, ForeignRowsError, RefusedError
from retention.storage import files
from retention.storage.digesting import digest_of_file
from retention.storage.parallel import in_threads
from retention.stores.dead_files import DeadFiles
from retention.verify.checks import RESTORE_RECORD, StreamToVerify
from retention.verify.data_files import decode
from retention.verify.finding import Check, Damage

_RECORDS = (REMOVED, "added", RANGES)
_COLUMNS = ["path", "partition", "segment", "file_bytes"]


def check_undo_records(stream: StreamToVerify) -> Iterator[Damage]:
    """A run that removed messages keeps all records for its undo, until reclaim has folded them into evidence."""
    kept = kept_runs(stream.opened)
    for record in stream.outcomes:
        names = kept.get(record.run)
        if not names or not (record.is_done and record.removed_messages and record.names_initiator):
            continue
        missing = [name for name in _RECORDS if name not in names]
        if missing and not stream.taken.is_folded(record.run):
            yield Damage(
                "undo",
                undo_location(stream.opened, record.run, missing[0]),
                f"run {record.run} has other records for its undo, and this one is missing",
                RESTORE_RECORD,
            )


@dataclass(frozen=True)
class _Removed:
    """A file that a run removed, and that an undo may need."""

    run: str
    bytes: int
    file: DataFile
    """The file at its present location; a verification does not mind that it is missing."""


def check_removed_contents(stream: StreamToVerify) -> Iterator[Damage]:
    """A file that a run removed, and that still exists, is as long and has the bytes that were written."""
    removed = _removed_files(stream)
    paths = sorted(removed)
    if stream.sample is not None and paths:
        count = max(1, round(stream.sample * len(paths)))
        paths = random.Random(stream.table.version).sample(paths, count)  # noqa: S311
    dead = dead_files(stream.opened)
    chosen = [_placed(dead, removed[path]) for path in paths]
    threads = files.read_parallelism(stream.opened.root)
    for each, differs in zip(chosen, in_threads(_differs, chosen, threads), strict=True):
        if differs:
            undo = command("undo", each.run)
            yield Damage(
                "undo",
                each.file.location,
                f"{undo} would restore this file, and its bytes are not those that were written",
                "restore the file from a copy; otherwise reclaim deletes it after the grace period",
            )


def _removed_files(stream: StreamToVerify) -> dict[str, _Removed]:
    """Path of each file that is not live, and that an undo may need → what its run recorded of it."""
    live = {data_path(path) for path in stream.table.files["path"].to_pylist()}
    removed: dict[str, _Removed] = {}
    for run in kept_runs(stream.opened):
        try:
            rows = read_record(stream.opened, run, REMOVED)
        except RefusedError:
            continue
        for row in rows.select(_COLUMNS).to_pylist():
            path = data_path(row["path"])
            record = stream.opened.layout.engine_path("subjects", path)
            file = DataFile(path, row["partition"], row["segment"], path, record)
            removed[path] = _Removed(run, row["file_bytes"], file)
    return {path: each for path, each in removed.items() if path not in live}


def _placed(dead: DeadFiles, removed: _Removed) -> _Removed:
    place = dead.places(DeadFile(removed.file.path, 0, Reason.REMOVED, 0))[0]
    return replace(removed, file=replace(removed.file, location=place))


def _differs(removed: _Removed) -> bool:
    """Whether a file exists, and differs from what was written; without a digest, every page is decoded."""
    place = removed.file.location
    length = files.length(place)
    if length is None:
        return False
    if length != removed.bytes:
        return True
    record = digest_at(removed.file.digest_location).load()
    try:
        if record is not None and record.sha256 is not None:
            return digest_of_file(place) != record.sha256
        decode(removed.file)
    except FileNotFoundError:
        return False
    except (DamagedError, ForeignRowsError):
        # Reclaim may have deleted it meanwhile.
        return files.length(place) is not None
    return False


UNDO_CHECKS: list[tuple[str, Check[StreamToVerify]]] = [
    ("undo", check_undo_records),
    ("undo", check_removed_contents),
]
"""The checks of what an undo needs."""
