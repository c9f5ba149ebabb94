"""Planning of requested removals: a request is a rule, and its decision takes the fold and the veto of a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect, refuse_held
from retention.context.position import next_seq, next_seq_without_table
from retention.context.topic import has_data, refuse_partition
from retention.core.inventory import Inventory
from retention.core.labels import on_stream
from retention.core.neighbours import runs_within
from retention.core.spans import Array, Spans, spans_of
from retention.core.spoken_commands import command
from retention.core.subjects import matching_mask
from retention.core.units import format_instant
from retention.core.wording import counted
from retention.datafile.subject_digest import MESSAGES_AT_ONCE
from retention.engines.select import Engines
from retention.errors import RefusedError, UsageError
from retention.plan.build import make_removal, under_holds
from retention.plan.plan import Plan, empty_plan
from retention.plan.remaining import RemainingMessages, RemainingRow, all_remaining
from retention.plan.removed_ranges import ranges_of
from retention.planners.cached import Planned
from retention.planners.deleted_subjects import counts_of
from retention.planners.probe import StoredRows
from retention.planners.request_guards import check_allowed
from retention.planners.topic import plan_delete_segments
from retention.planners.veto import veto
from retention.ports import Snapshot
from retention.rules import requests
from retention.rules.erase import Erase, erase
from retention.rules.fold import Vetoed, fold
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.purge_deletes import PurgeDeletes, below_cuts, cuts_of
from retention.rules.requests import Delete, Drop, Purge, Request, Rollup
from retention.rules.row_verdicts import ANYBODY
from retention.rules.verdicts import Verdicts
from retention.rules.veto import Veto


@dataclass(frozen=True)
class RequestTable:
    """The stream or topic of a request, at one version and instant."""

    opened: OpenedStream
    snapshot: Snapshot
    inventory: Inventory
    rows: StoredRows
    now_ns: int

    @cached_property
    def remaining(self) -> RemainingMessages:
        """All messages: no request considers consumers."""
        return all_remaining(self.inventory)

    @cached_property
    def spans(self) -> Spans:
        """The spans of the stream."""
        return spans_of(self.inventory.files)

    def counted(self, matches: Callable[[pa.ChunkedArray], pa.Array]) -> Array:
        """Count the messages of each span on the subjects that match, from digests, a few files at a time."""
        files, spans = self.inventory.files, self.spans
        messages = np.zeros(len(spans), dtype=np.int64)
        for first, end in runs_within(files["messages"].to_pylist(), MESSAGES_AT_ONCE):
            counts = self.opened.store.subject_counts(files.slice(first, end - first))
            mask = matches(counts["subject"])
            messages += requests.counted_in(counts, mask, spans.span_of_file[first:], len(spans))
        return messages

    def kept_by(self, plan: Plan) -> int:
        """The number of messages that a plan does not remove."""
        return int(self.spans.messages.sum()) - plan.removed_messages


@on_stream
def plan_removal(
    opened: OpenedStream, request: Request, engines: Engines, vetoes: Sequence[Veto] = ()
) -> Planned:
    """Plan a removal; only caches are written.

    Without a filter, metadata decides all spans except the one at the cut. With a filter, subject
    digests locate the files with matching messages.

    Args:
        opened: the stream or topic.
        request: the request.
        engines: the engines that read rows.
        vetoes: the reasons to keep messages.

    Raises:
        UsageError: a message to delete or a stream to drop does not exist, or the partition of segments to delete
            does not.
        RefusedError: the stream's configuration or a guard of the table denies it, or a veto keeps a message of a
            stream to drop.
        DamagedError: a file that had to be read is damaged.
    """
    check_allowed(opened, request)
    if isinstance(request, DeleteSegments):
        refuse_partition(opened, request.partition)
    if not opened.table.exists():
        return Planned(_without_table(opened, request), {}, None)
    snapshot = opened.store.snapshot()
    if isinstance(request, DeleteSegments):
        plan = plan_delete_segments(opened, request, snapshot, vetoes)
        return Planned(plan, plan.cause.next_seq, snapshot)
    inventory = opened.store.inventory(snapshot)
    rows = StoredRows(opened, engines)
    plan = plan_request(
        RequestTable(opened, snapshot, inventory, rows, opened.clock()), request, vetoes
    )
    return Planned(plan, inventory.counters.next_seq, snapshot)


def plan_request(table: RequestTable, request: Request, vetoes: Sequence[Veto] = ()) -> Plan:
    """Plan a request to an existing table, except the deletion of segments.

    Raises:
        UsageError, RefusedError, DamagedError: as `plan_removal`.
    """
    opened = table.opened
    holds = holds_in_effect(opened, table.inventory.counters)
    _refuse_held(opened, table.inventory, request)
    decided = fold(table.spans, [_RULES[type(request)](table, request)])
    vetoed = veto(decided, (*holds.vetoes, *vetoes), table.rows.of(table.remaining))
    plan = make_removal(table.inventory, opened.config.policy(), table.now_ns, vetoed, request)
    plan = under_holds(plan, holds, vetoed)
    if isinstance(request, Delete):
        _check_there(table, request, vetoed)
    if isinstance(request, Drop):
        _refuse_kept(table, plan)
        return replace(plan, header=replace(plan.header, begins_epoch=True))
    if isinstance(request, Purge) and opened.config.topic is not None:
        begins = not table.kept_by(plan) and has_data(opened, table.snapshot)
        return replace(plan, header=replace(plan.header, begins_epoch=begins))
    if isinstance(request, Purge):
        sequences = requests.moved(request, next_seq(opened, table.inventory))
        return replace(plan, effects=replace(plan.actions, sequences=sequences))
    return plan


def _refuse_held(opened: OpenedStream, inventory: Inventory, request: Request) -> None:
    """Refuse a request that cannot leave held messages out, while a legal hold is in effect.

    Raises:
        RefusedError: one is.
    """
    if isinstance(request, Drop):
        refuse_held(opened, inventory.counters, "a drop")
    elif isinstance(request, Purge) and opened.config.topic is not None:
        refuse_held(opened, inventory.counters, "a purge of a topic")


def _without_table(opened: OpenedStream, request: Request) -> Plan:
    """The plan of a removal from a table that was never created, or is dropped.

    Raises:
        UsageError: the request needs something that is not there.
    """
    if isinstance(request, Drop):
        raise UsageError(_nothing_to_drop(opened))
    first = next_seq_without_table(opened)
    if isinstance(request, Delete):
        raise _not_there(opened, request.seqs, first, first)
    plan = empty_plan(opened.name, opened.clock(), opened.config.policy())
    actions = replace(plan.actions, sequences=requests.moved(request, first))
    return replace(plan, header=replace(plan.header, request=request), effects=actions)


def _purge(table: RequestTable, request: Purge) -> Verdicts:
    subject = request.subject
    if subject is None:
        return requests.purge(table.spans, request, table.spans.messages)
    matched = table.counted(lambda subjects: matching_mask(subjects, (subject,)))
    return requests.purge(table.spans, request, matched)


def _delete(table: RequestTable, request: Delete) -> Verdicts:
    return requests.delete(table.spans, request)


def _erase(table: RequestTable, request: Erase) -> Verdicts:
    if not request.messages.subjects:
        return erase(table.spans, request, np.zeros(len(table.spans), dtype=np.int64))
    return erase(table.spans, request, table.counted(request.messages.on_subjects))


def _purge_deletes(table: RequestTable, request: PurgeDeletes) -> Verdicts:
    """Find deletions as for `delete_retention`: headers are read from files not searched for them before."""
    every = [RemainingRow(row) for row in range(table.inventory.files.num_rows)]
    deletions = table.rows.deletions(table.remaining, every).messages
    counts = counts_of(pc.unique(deletions["subject"]), table.remaining, table.rows)
    last = counts.group_by("subject").aggregate([("last_seq", "max")])
    last = last.rename_columns(["subject", "last_seq"])
    cuts = cuts_of(deletions, last, table.now_ns - request.older_than_ns)
    return below_cuts(cuts, counts, table.spans)


def _roll_up(table: RequestTable, request: Rollup) -> Verdicts:
    if request.everything:
        return requests.roll_up(table.spans, request, table.spans.messages)
    named = pa.array(request.subjects, pa.string())
    matched = table.counted(lambda subjects: pc.is_in(subjects, value_set=named))
    return requests.roll_up(table.spans, request, matched)


def _drop(table: RequestTable, request: Drop) -> Verdicts:
    return Verdicts(request.rule, np.ones(len(table.spans), dtype=bool))


_RULES: Mapping[type, Callable[[RequestTable, Any], Verdicts]] = {
    Purge: _purge,
    Delete: _delete,
    PurgeDeletes: _purge_deletes,
    Rollup: _roll_up,
    Drop: _drop,
    Erase: _erase,
}
"""The rule of each kind of request, decided from metadata as far as possible."""


def _nothing_to_drop(opened: OpenedStream) -> str:
    dropped_ns = opened.table.lifetime().dropped_ns
    if dropped_ns is None:
        return f"{opened.name}: nothing was ever written to it, so there is nothing to drop"
    return f"{opened.name}: was dropped already, at {format_instant(dropped_ns)}"


def _refuse_kept(table: RequestTable, plan: Plan) -> None:
    """Refuse to drop a stream if a veto keeps some of its messages: its files could not be removed."""
    kept, name = table.kept_by(plan), table.opened.name
    if kept:
        raise RefusedError(
            f"{name}: {counted(kept, 'message')} must be kept, so it cannot be dropped; nothing was changed; "
            f"{command('purge', name)} removes the others"
        )


def _check_there(table: RequestTable, request: Delete, vetoed: Vetoed) -> None:
    ends = ["first_seq", "last_seq"]
    kept = (
        answer.held.filter(pc.equal(answer.held["consumer"], ANYBODY)).select(ends)
        for answer in vetoed.answers
    )
    removed = ranges_of(vetoed.answers, None).table.select(ends)
    missing = requests.absent(request, pa.concat_tables([removed, *kept]))
    if missing:
        after = next_seq(table.opened, table.inventory)
        first = int(table.spans.min_seq.min()) if len(table.spans) else after
        raise _not_there(table.opened, missing, first, after)


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
