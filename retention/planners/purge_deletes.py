"""Planning of a purge of deleted keys: deletions as found for `delete_retention`, rows located by digests."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.spans import spans_of
from retention.engines.select import Engines
from retention.plan.build import make_removal
from retention.plan.plan import Plan
from retention.plan.remaining import RemainingRow, all_remaining
from retention.planners.cached import Planned
from retention.planners.deleted_subjects import counts_of
from retention.planners.probe import StoredRows
from retention.rules.purge_deletes import PurgeDeletes, answer_cuts, cuts_of, questions
from retention.rules.requests import Removal


def plan_purge_deletes(opened: OpenedStream, request: PurgeDeletes, engines: Engines) -> Planned:
    """Plan the removal of deleted keys; only caches are written.

    Headers are read from files not searched for deletions before. Other files are read if their
    digests name a deleted key.

    Args:
        opened: the stream; its table exists.
        request: the request.
        engines: the engines that read rows.

    Raises:
        RefusedError: a guard of the table refuses.
        DamagedError: a required file is damaged.
    """
    now_ns = opened.clock()
    snapshot = opened.store.snapshot()
    inventory = opened.store.inventory(snapshot)
    remaining, spans = all_remaining(inventory), spans_of(inventory.files)
    stored = StoredRows(opened, engines)
    every = [RemainingRow(row) for row in range(inventory.files.num_rows)]
    deletions = stored.deletions(remaining, every).messages
    counts = counts_of(pc.unique(deletions["subject"]), remaining, stored)
    last = counts.group_by("subject").aggregate([("last_seq", "max")])
    last = last.rename_columns(["subject", "last_seq"])
    cuts = cuts_of(deletions, last, now_ns - request.older_than_ns)
    nothing = np.zeros(len(spans), dtype=bool)
    answers = stored.of(remaining)(answer_cuts, spans, questions(cuts, counts, spans))
    removal = Removal(spans, request, nothing)
    plan: Plan = make_removal(inventory, opened.config.policy(), now_ns, removal, answers)
    return Planned(plan, inventory.counters.next_seq, snapshot)
