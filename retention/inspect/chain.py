"""The chain of a run history, recomputed from its records and compared with the table (`history.chain`)."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.history.chain import Chain, walk
from retention.history.runs import history_of
from retention.tables.opened import OpenedTable


def chain_of(opened: OpenedStream) -> Chain:
    """The chain of a stream's history, compared with the last link that its table has.

    The records are read after the table, so that a run between the two is no contradiction: its link is recorded before
    the table has it.

    Raises:
        DamagedError: a record, or the checkpoint of forgotten runs, is damaged.
    """
    exists = opened.store.exists()
    counter = opened.store.snapshot().counters.history_head if exists else None
    history = history_of(opened.warehouse, opened.name)
    return walk(list(history.stored()), history.forgotten(), counter)


def chain_of_table(table: OpenedTable) -> Chain:
    """The chain of the history of a table in place, whose log has no counter of the last link.

    Raises:
        DamagedError: as `chain_of`.
    """
    return walk(list(table.history.stored()), table.history.forgotten(), None)
