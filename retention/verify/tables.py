"""A verification of one table in place: its log and files as others see them, and everything there that is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

import pyarrow.compute as pc

from retention.core.progress import with_progress
from retention.core.wording import counted
from retention.delta.snapshot import DeltaSnapshot
from retention.delta.vectors import read_vector
from retention.errors import DamagedError
from retention.history.kinds import TableApplied, TableUndone
from retention.inspect.chain import chain_of_table
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.digesting import digest_of_file
from retention.stores.pauses import PauseRecords
from retention.tables.access import access_of
from retention.tables.evidence import evidence_location, read_evidence
from retention.tables.holds import TableHoldRecords
from retention.tables.opened import OpenedTable
from retention.tables.records import read_changes, read_digests
from retention.verify.finding import (
    Check,
    Damage,
    Unverified,
    Verification,
    damage_of_error,
    damages_of,
    ledger_damages,
)
from retention.verify.record import keep_last

FROM_COPY = "restore the file from a copy of the table"


@dataclass(frozen=True)
class TableToVerify:
    """A table at one version, and our records of it."""

    table: OpenedTable
    snapshot: DeltaSnapshot

    @cached_property
    def adds(self) -> Mapping[str, Mapping[str, Any]]:
        """Decoded path → the `add` action of each live file."""
        every = self.snapshot.adds_of(range(self.snapshot.files.num_rows))
        return {unquote(add["path"]): add for add in every}

    @cached_property
    def ours(self) -> Mapping[str, str]:
        """Path of each live file that runs wrote → the digest that was taken then.

        Raises:
            DamagedError: a record of digests cannot be read.
        """
        return {path: sha for path, sha in read_digests(self.table).items() if path in self.adds}

    @cached_property
    def standing(self) -> list[TableApplied]:
        """The passes that committed and are not undone, newest first.

        Raises:
            DamagedError: a record of the run history is damaged.
        """
        outcomes = list(self.table.history.outcomes())
        undone = {
            each.undoes for each in outcomes if isinstance(each, TableUndone) and each.may_count
        }
        passes = (each for each in outcomes if isinstance(each, TableApplied))
        return [each for each in passes if each.is_done and each.run not in undone]

    def location_of(self, path: str) -> str:
        """The location of a file of the table."""
        return files.join(self.table.location, path)


def check_sizes(about: TableToVerify) -> Iterator[Damage]:
    """Every live file exists with the length that the log has."""
    paths = list(about.adds)
    lengths = files.lengths([about.location_of(path) for path in paths])
    for path, length in zip(paths, lengths, strict=True):
        wanted = about.adds[path]["size"]
        if length is None:
            yield Damage("size", about.location_of(path), "the file is missing", FROM_COPY)
        elif length != wanted:
            differs = f"the file has {counted(length, 'byte')} instead of {wanted:,}"
            yield Damage("size", about.location_of(path), differs, FROM_COPY)


def check_vectors(about: TableToVerify) -> Iterator[Damage]:
    """Every deletion vector has its checksum, and as many rows as the log says, all of them in the file."""
    for path, add in about.adds.items():
        if add.get("deletionVector") is None:
            continue
        try:
            dead = read_vector(about.snapshot.root, add["deletionVector"])
        except DamagedError as error:
            yield damage_of_error("vector", about.location_of(path), error)
            continue
        rows = _rows(add)
        if rows is not None and dead and dead.max() >= rows:
            yield Damage(
                "vector",
                about.location_of(path),
                f"its vector hides row {dead.max():,}, and the log says that it has {rows:,}",
                "restore the vector's file from a copy of the table",
            )


def _rows(add: Mapping[str, Any]) -> int | None:
    rows = parse_json(add.get("stats") or "{}").get("numRecords")
    return rows if isinstance(rows, int) else None


def check_contents(about: TableToVerify) -> Iterator[Damage]:
    """The files that runs wrote have the bytes that were written."""
    reading = with_progress(about.ours.items(), len(about.ours), "verifying files of runs")
    for path, recorded in reading:
        try:
            sha256 = digest_of_file(about.location_of(path))
        except FileNotFoundError:
            # The check of sizes names it.
            continue
        if sha256 != recorded:
            differs = f"its SHA-256 is {sha256}, and {recorded} was written"
            yield Damage("content", about.location_of(path), differs, FROM_COPY)


def check_history(about: TableToVerify) -> Iterator[Damage]:
    """The records of runs can be read, and none says more than the log."""
    for record in about.standing:
        version = record.version_after
        if version is not None and version > about.snapshot.version:
            yield Damage(
                "history",
                about.table.history.done_location(record.run),
                f"the record says that the run committed version {version}, and the log ends at "
                f"{about.snapshot.version}",
                "restore the newer log from a copy of the table",
            )


def check_evidence(about: TableToVerify) -> Iterator[Damage]:
    """The evidence of a pass has as many rows as the pass removed."""
    for record in about.standing:
        evidence = read_evidence(about.table, record.run)
        if evidence is None:
            continue
        rows = pc.sum(evidence.rows["rows"], min_count=0).as_py()
        if rows != record.removed_rows:
            yield Damage(
                "evidence",
                evidence_location(about.table, record.run),
                f"the run removed {counted(record.removed_rows, 'row')}, and the evidence has {rows:,}",
                "restore it from a copy of the warehouse",
            )


def check_pauses(about: TableToVerify) -> Iterator[Damage]:
    """The records of pauses can be read."""
    PauseRecords(about.table.warehouse).current()
    PauseRecords(about.table.home, about.table.name).current()
    yield from ()


def check_ledger(about: TableToVerify) -> Iterator[Damage]:
    """The warehouse has every legal hold that the ledger has."""
    table = about.table
    yield from ledger_damages(table.ledger, table.name, TableHoldRecords(table).missing)


def check_chain(about: TableToVerify) -> Iterator[Damage]:
    """The records of runs are linked one to the next (decision 0075)."""
    for finding in chain_of_table(about.table).findings:
        place = about.table.history.directory
        yield Damage("chain", place, finding, "restore it from a copy of the warehouse")


TABLE_CHECKS: list[tuple[str, Check[TableToVerify]]] = [
    ("size", check_sizes),
    ("vector", check_vectors),
    ("content", check_contents),
    ("history", check_history),
    ("evidence", check_evidence),
    ("chain", check_chain),
    ("pauses", check_pauses),
    ("ledger", check_ledger),
]
"""The checks of a table in place; records of another kind get a function here."""


def verify_table(table: OpenedTable) -> Verification:
    """Verify a table in place, and record that in the warehouse; nothing else is changed.

    The content of files that other programs wrote is not read: they have no digest that is ours.

    Raises:
        RefusedError: the table uses a feature that this release does not handle.
        StorageError: the storage failed.
    """
    started_ns = table.clock()
    try:
        snapshot = access_of(table).read(table)
    except DamagedError as error:
        return _kept(table, started_ns, None, [damage_of_error("log", table.location, error)])
    about = TableToVerify(table, snapshot)
    damages = list(damages_of(TABLE_CHECKS, about))
    if damages and access_of(table).read(table).version != snapshot.version:
        # Another program's commit came in between.
        about = TableToVerify(table, access_of(table).read(table))
        damages = list(damages_of(TABLE_CHECKS, about))
    return _kept(table, started_ns, about, damages)


def _kept(
    table: OpenedTable, started_ns: int, about: TableToVerify | None, damages: list[Damage]
) -> Verification:
    ours: Mapping[str, str] = {}
    if about is not None:
        # A record of digests that cannot be read is a damage of its own.
        with suppress(DamagedError):
            ours = about.ours
    result = Verification(
        table.name,
        "table",
        started_ns,
        table.clock(),
        -1 if about is None else about.snapshot.version,
        0 if about is None else len(about.adds),
        len(ours),
        0 if about is None else sum(int(about.adds[path]["size"]) for path in ours),
        None,
        0,
        0,
        tuple(dict.fromkeys(damages)),
        () if about is None else _returned(about),
    )
    keep_last(table.home, result)
    return result


def _returned(about: TableToVerify) -> tuple[Unverified, ...]:
    """Live files that a pass took out of the table: another program's restore put them back."""
    returned: list[Unverified] = []
    # Reclaim deletes the record of changes with the files; a damaged history is a damage of its own.
    with suppress(DamagedError):
        for record in about.standing:
            with suppress(DamagedError):
                returned += _returned_of(about, record.run)
    return tuple(returned)


def _returned_of(about: TableToVerify, run: str) -> Iterator[Unverified]:
    for change in read_changes(about.table, run):
        path = unquote(change.before["path"])
        if change.is_whole_or_copied and path in about.adds:
            reason = f"run {run} took it out of the table, and another program put it back"
            yield Unverified(about.location_of(path), reason)
