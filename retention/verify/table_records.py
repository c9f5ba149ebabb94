"""Checks of the records that runs on a table in place left, and of the files that an undo of them would restore."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Literal
from urllib.parse import unquote

import pyarrow.compute as pc

from retention.core.wording import counted
from retention.delta.features import ABSOLUTE
from retention.errors import DamagedError
from retention.history.kinds import TableApplied
from retention.storage import files
from retention.storage.digesting import digest_of_file
from retention.tables.evidence import evidence_location, read_evidence, salt_location, salt_of
from retention.tables.records import ChangedFile, location_of, read_changes, read_digests
from retention.verify.finding import Check, Damage, Unverified
from retention.verify.table import FROM_COPY, TableToVerify

_FROM_WAREHOUSE = "restore it from a copy of the warehouse"


def check_changes(about: TableToVerify) -> Iterator[Damage]:
    """The record of the files that each pass changed has the bytes that were written."""
    for record in about.passes:
        yield from _of_record(about, record, "undo", "changes")


def _of_record(
    about: TableToVerify, record: TableApplied, check: str, name: Literal["changes", "evidence"]
) -> Iterator[Damage]:
    """The damage of a record of a pass, by its digest."""
    recorded = about.rewritten.get((record.run, name), record.records.get(name))
    if not recorded:
        return
    place = (location_of if name == "changes" else evidence_location)(about.table, record.run)
    try:
        sha256 = digest_of_file(place)
    except FileNotFoundError:
        # Reclaim deletes the outcome first.
        if about.table.history.done(record.run) is not None:
            missing = f"run {record.run} wrote this record, and it is missing"
            yield Damage(check, place, missing, _FROM_WAREHOUSE)
        return
    if sha256 != recorded:
        differs = f"its SHA-256 is {sha256}, and {recorded} was written"
        yield Damage(check, place, differs, _FROM_WAREHOUSE)


def check_removed(about: TableToVerify) -> Iterator[Damage]:
    """A file that a pass took out of the table, and that still exists, is as an undo needs it."""
    digests = read_digests(about.table)
    for record in about.standing:
        removed = _removed(about, record)
        places = [about.location_of(path) for path in removed]
        lengths = files.lengths(places)
        for (path, wanted), place, length in zip(removed.items(), places, lengths, strict=True):
            if length is not None and (length != wanted or _differs(place, digests.get(path))):
                yield Damage(
                    "undo",
                    place,
                    f"an undo of run {record.run} would restore this file, and its bytes are not those that the run "
                    "removed",
                    FROM_COPY,
                )


def _removed(about: TableToVerify, record: TableApplied) -> dict[str, int]:
    """Decoded path of each file that a pass took out of the table and that is not live → its length."""
    return {
        path: int(change.before["size"])
        for change in _changes(about, record)
        if change.is_whole_or_copied
        and re.match(ABSOLUTE, change.before["path"]) is None
        and (path := unquote(change.before["path"])) not in about.adds
    }


def _changes(about: TableToVerify, record: TableApplied) -> list[ChangedFile]:
    """The files that a pass changed; none if its record cannot be read, which is a damage of its own."""
    with suppress(DamagedError):
        return read_changes(about.table, record.run)
    return []


def _differs(place: str, recorded: str | None) -> bool:
    if recorded is None:
        return False
    try:
        return digest_of_file(place) != recorded
    except FileNotFoundError:
        return False


def check_evidence(about: TableToVerify) -> Iterator[Damage]:
    """The evidence of each pass is as written, has a line for each row, and the secret of its hashes is there."""
    for record in about.passes:
        changed = list(_of_record(about, record, "evidence", "evidence"))
        yield from changed or _of_evidence(about, record)


def _of_evidence(about: TableToVerify, record: TableApplied) -> Iterator[Damage]:
    evidence = read_evidence(about.table, record.run)
    if evidence is None:
        return
    place = evidence_location(about.table, record.run)
    rows = pc.sum(evidence.rows["rows"], min_count=0).as_py()
    if rows != record.removed_rows:
        differs = (
            f"the run removed {counted(record.removed_rows, 'row')}, and the evidence has {rows:,}"
        )
        yield Damage("evidence", place, differs, _FROM_WAREHOUSE)
    if evidence.salt is not None and salt_of(about.table, evidence) is None:
        hashed = (
            f"the keys in {place} are hashed with another secret, so that no key finds its rows"
        )
        yield Damage("evidence", salt_location(about.table), hashed, _FROM_WAREHOUSE)


def unverified_files(about: TableToVerify) -> Iterator[Unverified]:
    """Live files that a pass took out of the table, or that it wrote and whose digest is not recorded."""
    ours: Mapping[str, str] = {}
    # Digests or a history that cannot be read are damages of their own.
    with suppress(DamagedError):
        ours = about.ours
    with suppress(DamagedError):
        for record in about.standing:
            for change in _changes(about, record):
                yield from _unverified(about, record.run, change, ours)


def _unverified(
    about: TableToVerify, run: str, change: ChangedFile, ours: Mapping[str, str]
) -> Iterator[Unverified]:
    before = unquote(change.before["path"])
    if change.is_whole_or_copied and before in about.adds:
        reason = f"run {run} took it out of the table, and another program put it back"
        yield Unverified(about.location_of(before), reason)
    after = "" if change.after is None else unquote(change.after["path"])
    if change.is_copied and after in about.adds and after not in ours:
        reason = f"run {run} wrote it, and no digest is recorded: its record was lost"
        yield Unverified(about.location_of(after), reason)


RECORD_CHECKS: list[tuple[str, Check[TableToVerify]]] = [
    ("undo", check_changes),
    ("undo", check_removed),
    ("evidence", check_evidence),
]
"""The checks of what runs left for undos and auditors."""
