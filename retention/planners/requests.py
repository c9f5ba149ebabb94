"""Removals that people ask for: from a purge or a delete to the plan that carries it out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.position import next_seq, next_seq_without_table
from retention.core.inventory import Inventory
from retention.core.spans import Array, Spans, spans_of
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.plan.build import make_removal
from retention.plan.plan import empty_plan
from retention.plan.remaining import all_remaining
from retention.planners.cached import Planned
from retention.planners.delete_segments import plan_delete_segments
from retention.planners.probe import StoredRows
from retention.planners.purge_topic import plan_purge_topic
from retention.planners.request_guards import check_allowed
from retention.rules import requests
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.requests import Delete, MessageRequest, Purge, Removal, Request
from retention.rules.row_verdicts import Answer
from schemas.plan import REMOVED_RANGES

_AT_ONCE = 512
"""Files whose subject digests are held together."""


def plan_removal(opened: OpenedStream, request: Request, engines: Engines) -> Planned:
    """Plan a removal; nothing is written but caches.

    Without a filter, metadata alone decides all but the span into which the cut falls; with one, subject digests
    tell which files hold a message that matches.

    Raises:
        UsageError: a message to be deleted is not there, or a partition whose segments are.
        RefusedError: the stream's configuration denies it, or a guard of the table.
        DamagedError: a file that had to be read is damaged.
    """
    check_allowed(opened, request)
    if isinstance(request, DeleteSegments):
        return plan_delete_segments(opened, request)
    if opened.config.topic is not None and isinstance(request, Purge):
        return plan_purge_topic(opened, request)
    policy, now_ns = opened.config.policy(), opened.clock()
    if not opened.store.exists():
        first = next_seq_without_table(opened)
        if isinstance(request, Delete):
            raise _not_there(opened, request.seqs, first, first)
        nothing = empty_plan(opened.name, now_ns, policy)
        header = replace(nothing.header, request=request)
        actions = replace(nothing.actions, sequences=requests.moved(request, first))
        plan = replace(nothing, header=header, actions=actions)
        return Planned(plan, {}, None)
    snapshot = opened.store.snapshot()
    inventory = opened.store.inventory(snapshot)
    after = next_seq(opened, inventory)
    decided = _decided(opened, inventory, request)
    rows = StoredRows(opened, engines).of(all_remaining(inventory))
    answers = rows(requests.answer_request, decided.spans, decided.questions())
    if isinstance(request, Delete):
        _check_there(opened, request, decided.spans, answers, after)
    plan = make_removal(inventory, policy, now_ns, decided, answers)
    actions = replace(plan.actions, sequences=requests.moved(request, after))
    plan = replace(plan, actions=actions)
    return Planned(plan, inventory.counters.next_seq, snapshot)


def _decided(opened: OpenedStream, inventory: Inventory, request: MessageRequest) -> Removal:
    spans = spans_of(inventory.files)
    if isinstance(request, Delete):
        return requests.delete(spans, request)
    if request.subject is None:
        return requests.purge(spans, request, spans.messages)
    return requests.purge(spans, request, _matched(opened, inventory, spans, request.subject))


def _matched(opened: OpenedStream, inventory: Inventory, spans: Spans, subject: str) -> Array:
    """Count the messages of each span that match, from the digests of some files at a time."""
    matched = np.zeros(len(spans), dtype=np.int64)
    for at in range(0, inventory.files.num_rows, _AT_ONCE):
        counts = opened.store.subject_counts(inventory.files.slice(at, _AT_ONCE))
        matched += requests.matching(counts, spans.span_of_file[at:], len(spans), subject)
    return matched


def _check_there(
    opened: OpenedStream, request: Delete, spans: Spans, answers: list[Answer], after: int
) -> None:
    removed = [REMOVED_RANGES.empty_table(), *(answer.removed for answer in answers)]
    missing = requests.absent(request, pa.concat_tables(removed))
    if missing:
        first = int(spans.min_seq.min()) if len(spans) else after
        raise _not_there(opened, missing, first, after)


def _not_there(
    opened: OpenedStream, missing: tuple[int, ...], first: int, after: int
) -> UsageError:
    """Error for missing messages: the server's for the first; its two stores differ (docs/semantics/removals.md)."""
    seq = missing[0]
    answer, code = f"sequence {seq} not found", 10043
    if opened.config.storage == "file" and not first <= seq < after:
        answer, code = ("no message found" if seq < first else "stream store EOF"), 10057
    more = f", nor {len(missing) - 1:,} more of those named" if len(missing) > 1 else ""
    return UsageError(
        f"{opened.name}: there is no message {seq}{more} ({answer}, error code {code}); nothing was changed; leave out "
        f"what is not there: `retention messages {opened.name}` lists what is"
    )
