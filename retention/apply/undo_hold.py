"""The legal hold that an undo places on the messages which it restores, before it commits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.apply.exact_ranges import without_holes
from retention.apply.undo_records import find_ranges
from retention.context.context import OpenedStream
from retention.context.holds import place_hold
from retention.core.seq_ranges import merged_ranges
from retention.core.spans import Array
from retention.errors import RefusedError
from retention.history.initiator import initiator
from retention.history.kinds import Dropped
from retention.history.record import RunRecord
from retention.stores.holds import Hold, HoldRecords, new_id


def hold_of_undo(opened: OpenedStream, outcome: RunRecord, reason: str) -> Hold:
    """Place a legal hold on exactly the messages of a run; after a kill, the same one again.

    Args:
        opened: the stream.
        outcome: the run to undo.
        reason: kept with the legal hold.

    Raises:
        RefusedError: the run kept no record of its messages, or it dropped the stream.
        BusyError: as `place_hold`.
    """
    undoes = {"undoes": outcome.run}
    for hold in HoldRecords(opened.root, opened.name).in_effect():
        if undoes.items() <= (hold.initiator or {}).items():
            return hold
    record = None if isinstance(outcome, Dropped) else find_ranges(opened, outcome.run)
    parts = (
        []
        if record is None
        else [_ranges(table) for table in without_holes(opened, record.tables())]
    )
    if not sum(map(len, parts)):
        raise RefusedError(
            f"{opened.name}: no record has the sequences that run {outcome.run} removed, so that a legal hold cannot "
            "name them; nothing was changed; undo the run without --hold, then place a legal hold by subject, "
            "sequences or times"
        )
    now_ns = opened.clock()
    hold = Hold(
        opened.name,
        new_id(now_ns),
        reason,
        ranges=merged_ranges(np.concatenate(parts)),
        at_ns=now_ns,
        initiator={**initiator(), **undoes},
    )
    place_hold(opened, hold)
    return hold


def _ranges(removed: pa.Table) -> Array:
    """The ranges of sequences of a run, without its exceptions; shape (n, 2).

    Args:
        removed: shape `RUN_RANGES`.
    """
    columns = [removed[name].to_pylist() for name in ("first_seq", "last_seq")]
    excepted = [removed[name].to_pylist() for name in ("except_firsts", "except_lasts")]
    pairs = [
        (first, last)
        for start, end, firsts, lasts in zip(*columns, *excepted, strict=True)
        for first, last in zip(
            [start, *(each + 1 for each in lasts or ())],
            [*(each - 1 for each in firsts or ()), end],
            strict=True,
        )
        if first <= last
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
