"""The erasures of a table in place, by their records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from retention.erasure.record import ErasureRecord, Erasures
from retention.errors import RefusedError
from retention.storage import files
from retention.storage.digesting import digest_of_file
from retention.tables.evidence import evidence_location
from retention.tables.opened import OpenedTable
from retention.tables.records import location_of

_PLACES = {"changes": location_of, "evidence": evidence_location}
"""Record of a run that an erasure may rewrite → the function that locates it."""


def erasures_of(table: OpenedTable) -> Erasures:
    """The erasures of a table."""
    return Erasures(table.home, table.name)


def refuse_erased(table: OpenedTable, run: str) -> None:
    """Refuse to undo a run that would bring back erased rows.

    Raises:
        RefusedError: names the erasure.
        DamagedError: the record of an erasure cannot be read.
    """
    for record in erasures_of(table).all():
        if run in record.lost_undos:
            raise RefusedError(
                f"{table.name}: erasure {record.id} took rows of run {run} for good, so that the run cannot be undone; "
                "nothing was changed; add rows that have to come back from a copy of your own"
            )


def announced(
    table: OpenedTable, record: ErasureRecord, name: str, runs: Iterable[str]
) -> ErasureRecord:
    """The record of an erasure that is about to rewrite a record of some runs; written when this returns."""
    records = {run: dict(digests) for run, digests in record.records.items()}
    for run in runs:
        records.setdefault(run, {})[name] = ""
    if records == record.records:
        return record
    record = record.updated(records=records)
    erasures_of(table).write(record)
    return record


def with_digests(table: OpenedTable, record: ErasureRecord) -> ErasureRecord:
    """The record of an erasure with the digests of all records that it has rewritten; written when this returns."""
    records = {
        run: {name: digest or _digest(table, run, name) for name, digest in digests.items()}
        for run, digests in record.records.items()
    }
    if records == record.records:
        return record
    record = record.updated(records=records)
    erasures_of(table).write(record)
    return record


def rewritten_records(table: OpenedTable) -> Mapping[tuple[str, str], str]:
    """Run and name of each record that an erasure rewrote → its SHA-256 since; empty: the erasure is unfinished.

    Raises:
        DamagedError: the record of an erasure cannot be read.
    """
    return {
        (run, name): digest
        for record in erasures_of(table).all()
        for run, digests in record.records.items()
        for name, digest in digests.items()
    }


def _digest(table: OpenedTable, run: str, name: str) -> str:
    place = _PLACES[name](table, run)
    return "" if files.length(place) is None else digest_of_file(place)
