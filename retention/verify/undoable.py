"""Checks of everything that an undo needs: the records of runs, and the files that they removed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from retention.apply.reclaim.survey import dead_files
from retention.apply.undo_records import kept_runs, read_record
from retention.context.run_files import RANGES, REMOVED, undo_location
from retention.core.reclaim import DeadFile, Reason
from retention.core.spoken_commands import command
from retention.core.vector_paths import data_path
from retention.datafile.subject_digest import digest_at
from retention.errors import RefusedError
from retention.storage import files
from retention.storage.digesting import digest_of_file
from retention.storage.parallel import in_threads
from retention.verify.checks import RESTORE_RECORD, StreamToVerify
from retention.verify.finding import Check, Damage

_RECORDS = (REMOVED, "added", RANGES)


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


def check_removed_contents(stream: StreamToVerify) -> Iterator[Damage]:
    """A file that a run removed, and that still exists, has the bytes that were written."""
    removed = _removed_paths(stream)
    paths = list(removed)
    if stream.sample is not None and paths:
        count = max(1, round(stream.sample * len(paths)))
        paths = random.Random(stream.table.version).sample(sorted(paths), count)  # noqa: S311
    places = _places(stream, paths)
    threads = files.read_parallelism(stream.opened.root)
    subjects = [stream.opened.layout.engine_path("subjects", path) for path in paths]
    results = in_threads(_differs, list(zip(places, subjects, strict=True)), threads)
    for path, place, differs in zip(paths, places, results, strict=True):
        if differs:
            undo = command("undo", removed[path])
            yield Damage(
                "undo",
                place,
                f"{undo} would restore this file, and its bytes are not those that were written",
                "restore the file from a copy; otherwise reclaim deletes it after the grace period",
            )


def _removed_paths(stream: StreamToVerify) -> dict[str, str]:
    """Path of each file that is not live, and that an undo may need → the run that removed it."""
    live = {data_path(path) for path in stream.table.files["path"].to_pylist()}
    removed: dict[str, str] = {}
    for run in kept_runs(stream.opened):
        try:
            rows = read_record(stream.opened, run, REMOVED)
        except RefusedError:
            continue
        removed |= {data_path(path): run for path in rows["path"].to_pylist()}
    return {path: run for path, run in removed.items() if path not in live}


def _places(stream: StreamToVerify, paths: Sequence[str]) -> list[str]:
    dead = dead_files(stream.opened)
    return [dead.places(DeadFile(path, 0, Reason.REMOVED, 0))[0] for path in paths]


def _differs(places: tuple[str, str]) -> bool:
    """Whether a file exists, has a digest in its record, and differs from it."""
    place, record_place = places
    record = digest_at(record_place).load()
    if record is None or record.sha256 is None:
        return False
    try:
        return digest_of_file(place) != record.sha256
    except FileNotFoundError:
        return False


UNDO_CHECKS: list[tuple[str, Check[StreamToVerify]]] = [
    ("undo", check_undo_records),
    ("undo", check_removed_contents),
]
"""The checks of what an undo needs."""
