"""The erasures of a table in place, by their records."""

from __future__ import annotations

from retention.erasure.record import Erasures
from retention.errors import RefusedError
from retention.tables.opened import OpenedTable


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
