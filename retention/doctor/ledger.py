"""The check of a ledger: it is the warehouse's, can be reached, and has nothing that the warehouse lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from retention.core.wording import counted
from retention.doctor.finding import Finding, ok, warning
from retention.stores.ledger import refuse_other_ledger


def check_ledger_of(
    ledger: str | None, warehouse: str, missing: Callable[[], Sequence[str]]
) -> Iterator[Finding]:
    """Check the part of a ledger that a stream or table has; nothing where there is no ledger.

    Args:
        ledger: its location; None: there is none.
        warehouse: the location of the warehouse.
        missing: the function that lists the records that only the ledger has.
    """
    if ledger is None:
        return
    refuse_other_ledger(ledger, warehouse)
    records = missing()
    if not records:
        yield ok("ledger", f"the warehouse has everything that {ledger} has")
        return
    yield warning(
        "ledger",
        f"the warehouse lacks {counted(len(records), 'record')} of {ledger}, {records[0]} the first",
        "run `retention apply`: it applies the legal holds and erasures of the ledger before it removes anything",
    )
