"""Planning of requested removals: from a purge, a delete or a drop to its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from retention.context.context import OpenedStream
from retention.context.position import next_seq, next_seq_without_table
from retention.context.topic import has_data, refuse_partition, topic_of
from retention.core.inventory import Inventory
from retention.core.labels import on_stream
from retention.core.neighbours import runs_within
from retention.core.spans import Array, Spans, spans_of
from retention.core.spoken_commands import command
from retention.core.units import format_instant
from retention.datafile.subject_digest import MESSAGES_AT_ONCE
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.plan.build import make_removal, make_topic_plan
from retention.plan.plan import Plan, empty_plan
from retention.plan.protected import ProtectedSegments
from retention.plan.protected_segments import protected_segments
from retention.plan.remaining import all_remaining
from retention.plan.removed_ranges import ranges_of
from retention.planners.cached import Planned
from retention.planners.probe import StoredRows
from retention.planners.purge_deletes import plan_purge_deletes
from retention.planners.request_guards import check_allowed
from retention.planners.topic import TopicPlanning, pins_of, plan_topic_table, rules_of_files
from retention.rules import DROP, PURGE, RULES, requests
from retention.rules.iggy.delete_segments import DeleteSegments, requested_fates
from retention.rules.iggy.evaluate import reached_by
from retention.rules.iggy.segments import STAYS, TopicSegments
from retention.rules.purge_deletes import PurgeDeletes
from retention.rules.requests import Delete, Drop, NamedRemoval, Purge, Request
from retention.rules.row_verdicts import Answer


@on_stream
def plan_removal(opened: OpenedStream, request: Request, engines: Engines) -> Planned:
    """Plan a removal; only caches are written.

    Without a filter, metadata decides all spans except the one at the cut. With a filter, subject
    digests locate the files with matching messages.

    Raises:
        UsageError: a message to delete does not exist, or the partition of segments to delete does not.
        RefusedError: the stream's configuration or a guard of the table denies it.
        DamagedError: a file that had to be read is damaged.
    """
    check_allowed(opened, request)
    if isinstance(request, Drop):
        return _plan_drop(opened, request)
    if isinstance(request, DeleteSegments):
        return _plan_delete_segments(opened, request)
    if opened.config.topic is not None and isinstance(request, Purge):
        return _plan_purge_topic(opened, request)
    policy, now_ns = opened.config.policy(), opened.clock()
    if not opened.store.exists():
        first = next_seq_without_table(opened)
        if isinstance(request, Delete):
            raise _not_there(opened, request.seqs, first, first)
        nothing = _nothing(opened, request, now_ns)
        actions = replace(nothing.actions, sequences=requests.moved(request, first))
        return Planned(replace(nothing, actions=actions), {}, None)
    if isinstance(request, PurgeDeletes):
        return plan_purge_deletes(opened, request, engines)
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


def _nothing(opened: OpenedStream, request: Request, now_ns: int) -> Plan:
    """The plan of a removal from a table that was never created."""
    plan = empty_plan(opened.name, now_ns, opened.config.policy())
    return replace(plan, header=replace(plan.header, request=request))


def _plan_purge_topic(opened: OpenedStream, request: Purge) -> Planned:
    """Plan the removal of all messages of a topic, read or not (iggy `PurgeTopic`).

    Raises:
        RefusedError, DamagedError: as planning a pass.
    """
    policy, now_ns = opened.config.policy(), opened.clock()
    if not opened.store.exists():
        return Planned(_nothing(opened, request, now_ns), {}, None)
    snapshot = opened.store.snapshot()
    inventory = opened.store.inventory(snapshot)
    rules = np.full(inventory.files.num_rows, RULES.index(PURGE))
    plan = make_topic_plan(inventory, policy, now_ns, rules, None)
    begins, counted = has_data(opened, snapshot), inventory.counters.next_seq
    header = replace(plan.header, request=request, begins_epoch=begins)
    return Planned(replace(plan, header=header), counted, snapshot)


def _plan_drop(opened: OpenedStream, request: Drop) -> Planned:
    """Plan the removal of a stream or topic: every file is removed, and a new epoch begins without counters.

    Raises:
        UsageError: there is nothing to drop.
        RefusedError, DamagedError: as planning a pass.
    """
    if not opened.store.exists():
        raise UsageError(_nothing_to_drop(opened))
    snapshot = opened.store.snapshot()
    inventory = opened.store.inventory(snapshot)
    rules = np.full(inventory.files.num_rows, RULES.index(DROP))
    plan = make_topic_plan(inventory, opened.config.policy(), opened.clock(), rules, None)
    header = replace(plan.header, request=request, begins_epoch=True)
    return Planned(replace(plan, header=header), inventory.counters.next_seq, snapshot)


def _nothing_to_drop(opened: OpenedStream) -> str:
    dropped_ns = opened.store.lifetime().dropped_ns
    if dropped_ns is None:
        return f"{opened.name}: nothing was ever written to it, so there is nothing to drop"
    return f"{opened.name}: was dropped already, at {format_instant(dropped_ns)}"


def _plan_delete_segments(opened: OpenedStream, request: DeleteSegments) -> Planned:
    """Plan the removal of a partition's oldest sealed segments, up to the first one not read by every reader.

    Raises:
        UsageError: the stream is not a topic, or has no such partition.
        RefusedError, DamagedError: as planning a pass.
    """
    topic, now_ns = topic_of(opened).policy(), opened.clock()
    refuse_partition(opened, request.partition)
    policy = opened.config.policy()
    if not opened.store.exists():
        return Planned(_nothing(opened, request, now_ns), {}, None)
    planning = plan_topic_table(opened, topic, now_ns)
    reaching = replace(request, up_to=_reach(planning.stored_segments, request))
    up_to = {} if reaching.up_to is None else {request.partition: reaching.up_to}
    barriers = planning.offsets.barriers if topic.respect_consumer_offsets else {}
    fates = requested_fates(planning.stored_segments, up_to, barriers)
    rules = rules_of_files(planning.inventory, planning.stored_segments, fates)
    plan = make_topic_plan(planning.inventory, policy, now_ns, rules, pins_of(planning.offsets))
    held = _held(planning, up_to, fates) if topic.respect_consumer_offsets else None
    counters = planning.inventory.counters
    header = replace(plan.header, request=reaching)
    plan = replace(plan, header=header, held_segments=held, cause=planning.plan.cause)
    return Planned(plan, counters.next_seq, planning.snapshot)


def _held(planning: TopicPlanning, up_to: Mapping[int, int], fates: Array) -> ProtectedSegments:
    """Requested segments that are kept because a reader has not read them."""
    waiting = np.where(fates == STAYS, requested_fates(planning.stored_segments, up_to, {}), STAYS)
    rules = rules_of_files(planning.inventory, planning.stored_segments, waiting)
    return protected_segments(planning.inventory.files, rules, planning.offsets)


def _reach(segments: TopicSegments, request: DeleteSegments) -> int | None:
    parts = dict(segments.parts())
    part = parts.get(request.partition)
    return None if part is None else reached_by(segments, part, request.count)


def _decided(opened: OpenedStream, inventory: Inventory, request: Purge | Delete) -> NamedRemoval:
    spans = spans_of(inventory.files)
    if isinstance(request, Delete):
        return requests.delete(spans, request)
    if request.subject is None:
        return requests.purge(spans, request, spans.messages)
    return requests.purge(spans, request, _matched(opened, inventory, spans, request.subject))


def _matched(opened: OpenedStream, inventory: Inventory, spans: Spans, subject: str) -> Array:
    """Count the matching messages of each span, from digests, a few files at a time."""
    matched = np.zeros(len(spans), dtype=np.int64)
    for first, end in runs_within(inventory.files["messages"].to_pylist(), MESSAGES_AT_ONCE):
        counts = opened.store.subject_counts(inventory.files.slice(first, end - first))
        matched += requests.matching(counts, spans.span_of_file[first:], len(spans), subject)
    return matched


def _check_there(
    opened: OpenedStream, request: Delete, spans: Spans, answers: list[Answer], after: int
) -> None:
    missing = requests.absent(request, ranges_of(answers, None).table)
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
        f"the missing ones: {command('messages', opened.name)} lists the stored ones"
    )
