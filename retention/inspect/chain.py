"""The chain of a run history, recomputed from its records and compared with the table (`history.chain`)."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.history.chain import Chain, walk
from retention.history.runs import history_of
from retention.tables.opened import OpenedTable

_ATTEMPTS = 3


def chain_of(opened: OpenedStream) -> Chain:
    """The chain of a stream's history, compared with the last link that its table has.

    If a run commits while table and records are read, they are read again: it is no contradiction.

    Raises:
        DamagedError: a record, or the checkpoint of forgotten runs, is damaged.
    """
    history, counter = history_of(opened.warehouse, opened.name), _counter(opened)
    for _ in range(_ATTEMPTS):
        chain = walk(list(history.stored()), history.forgotten(), counter)
        before, counter = counter, _counter(opened)
        if not chain.findings or counter == before:
            break
    return chain


def _counter(opened: OpenedStream) -> int | None:
    """The number of the last link that a table has; None: there is no table."""
    return opened.store.snapshot().counters.history_head if opened.table.exists() else None


def chain_of_table(table: OpenedTable) -> Chain:
    """The chain of the history of a table in place, whose log has no counter of the last link.

    Raises:
        DamagedError: as `chain_of`.
    """
    return walk(list(table.history.stored()), table.history.forgotten(), None)
