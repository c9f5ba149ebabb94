"""Names of counters, the same in the logs of both table formats, and counters by name."""

from __future__ import annotations

from collections.abc import Mapping

from retention.core.counters import (
    ARCHIVE_HEAD,
    CLAIMS,
    CONSUMERS,
    DROPPED,
    EPOCH,
    GENERATION,
    HISTORY_HEAD,
    HOLDS,
    RELEASED,
    REPLAY,
    RUN,
    STAGING_CLAIMS,
    Counters,
)

NEXT_SEQ = "next_seq"
OPEN_BASE = "open_base"
BATCH = "batch"
REMOVED = "removed"
IN_EPOCH = (NEXT_SEQ, OPEN_BASE, BATCH, REMOVED)
"""Kinds with one counter for each partition or writer; these counters restart with each epoch."""
OF_TABLE = (
    CONSUMERS,
    RELEASED,
    EPOCH,
    CLAIMS,
    STAGING_CLAIMS,
    DROPPED,
    GENERATION,
    ARCHIVE_HEAD,
    HISTORY_HEAD,
    HOLDS,
    REPLAY,
)
"""Counters that a table has once, in every epoch; a new kind needs only its name here.

`RUN` belongs here too, but no update sets it: it follows from the run that commits.
"""


def name_of(kind: str, key: int | str) -> str:
    """The name of a partition's or a writer's counter: `next_seq/0`, `batch/loader`."""
    return f"{kind}/{key}"


def is_in_epoch(name: str) -> bool:
    """Whether a counter restarts with each epoch, by its name."""
    return name.partition("/")[0] in IN_EPOCH


def named(counters: Mapping[str, Mapping[int, int] | Mapping[str, int]]) -> dict[str, int]:
    """Counters of several kinds, by name.

    Args:
        counters: kind → partition or writer → value.
    """
    return {
        name_of(kind, key): value
        for kind, values in counters.items()
        for key, value in values.items()
    }


def counters_of(values: Mapping[str, int]) -> Counters:
    """Counters from their values by name; other names are ignored."""
    keyed: dict[str, dict[str, int]] = {kind: {} for kind in IN_EPOCH}
    for name, value in values.items():
        kind, _, key = name.partition("/")
        if kind in keyed:
            keyed[kind][key] = value
    next_seq, open_base, removed = (
        {int(key): value for key, value in keyed[kind].items() if key.isdigit()}
        for kind in (NEXT_SEQ, OPEN_BASE, REMOVED)
    )
    of_table = {name: values[name] for name in (*OF_TABLE, RUN) if name in values}
    return Counters(next_seq, open_base, keyed[BATCH], of_table, removed)


def risen(sets: Mapping[str, int], known: Counters) -> dict[str, int]:
    """The counters that a commit sets, by name; the highest removed sequences never fall.

    Args:
        sets: name → value, as the commit was prepared.
        known: the table's counters, in the epoch after the commit.
    """
    before = named({REMOVED: known.removed})
    return {name: max(value, before.get(name, value)) for name, value in sets.items()}
