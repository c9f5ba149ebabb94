"""A verification of one table in place: its log and files as others see them, and everything there that is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from retention.core.progress import with_progress
from retention.core.wording import counted
from retention.delta.vectors import read_vector
from retention.errors import DamagedError
from retention.inspect.chain import chain_of_table
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.digesting import digest_of_file
from retention.stores.pauses import PauseRecords
from retention.tables.access import access_of
from retention.tables.erasures import erasures_of
from retention.tables.holds import TableHoldRecords
from retention.tables.opened import OpenedTable
from retention.verify.erasure_reports import damaged_reports
from retention.verify.finding import (
    Check,
    Damage,
    Verification,
    damage_of_error,
    damages_of,
    ledger_damages,
)
from retention.verify.record import keep_last
from retention.verify.table import FROM_COPY, TableToVerify
from retention.verify.table_records import RECORD_CHECKS, unverified_files

_ATTEMPTS = 3


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
    """The records of runs can be read, and none of this table says more than the log."""
    for record in about.standing:
        version, intent = record.version_after, about.table.history.begun(record.run)
        basis = None if intent is None else intent.basis
        # Its owner may have created the table anew, with another id.
        is_of_table = basis is not None and basis.table_id == about.snapshot.metadata["id"]
        if is_of_table and version is not None and version > about.snapshot.version:
            yield Damage(
                "history",
                about.table.history.done_location(record.run),
                f"the record says that the run committed version {version}, and the log ends at "
                f"{about.snapshot.version}",
                "restore the newer log from a copy of the table",
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


def check_erasures(about: TableToVerify) -> Iterator[Damage]:
    """Each erasure that ended has an intact report."""
    yield from damaged_reports(erasures_of(about.table))


TABLE_CHECKS: list[tuple[str, Check[TableToVerify]]] = [
    ("size", check_sizes),
    ("vector", check_vectors),
    ("content", check_contents),
    ("history", check_history),
    *RECORD_CHECKS,
    ("chain", check_chain),
    ("pauses", check_pauses),
    ("ledger", check_ledger),
    ("erasures", check_erasures),
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
        about, damages = _verified(table)
    except DamagedError as error:
        return _kept(table, started_ns, None, [damage_of_error("log", table.location, error)])
    return _kept(table, started_ns, about, damages)


def _verified(table: OpenedTable) -> tuple[TableToVerify, list[Damage]]:
    """The table at one version with its damages, looked for again if another program committed meanwhile."""
    newest = access_of(table).read(table)
    for _ in range(_ATTEMPTS):
        about = TableToVerify(table, newest)
        damages = list(damages_of(TABLE_CHECKS, about))
        if not damages:
            break
        newest = access_of(table).read(table)
        if newest.version == about.snapshot.version:
            break
    return about, damages


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
        () if about is None else tuple(unverified_files(about)),
    )
    return keep_last(table.home, result)
