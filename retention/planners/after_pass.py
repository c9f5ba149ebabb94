"""The next due instant after a pass: decided from the files that it left, so that the next run opens nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from retention.context.context import OpenedStream
from retention.core.spans import Array, Spans, some_spans
from retention.plan.plan import Plan
from retention.planners.afresh import next_due_of
from retention.planners.cached import Planned, PlannedState
from retention.ports import Snapshot
from retention.rules.fold import Evaluation
from retention.rules.jetstream.evaluate import evaluate
from retention.rules.jetstream.prefix_scan import ends_in_prefix, prefix_policy
from retention.rules.jetstream.whole_segments import unread_answers
from retention.rules.row_verdicts import stop_of
from retention.rules.rule import NO_FACTS
from retention.stores.sidecar.next_due import NextDue, remember


def remember_left(
    opened: OpenedStream, planned: Planned, run: str, base: Snapshot, version: int
) -> None:
    """Remember the next due instant of the files that a pass left, if it is certain and no other commit came between.

    Args:
        opened: the stream.
        planned: the pass.
        run: the name of its run.
        base: the version of the table on which the run was prepared.
        version: the version that it committed.

    Raises:
        DamagedError, StorageError: the log cannot be read.
    """
    state = planned.state
    if state is None or not state.token.tells(base) or version != base.version + 1:
        return
    due = due_after(state, planned.plan) if base.follows else None
    if due is None:
        return
    token = opened.store.version_token()
    if token is not None and opened.store.find_commit(run, version - 1) == token.version == version:
        remember(opened.root, token, planned.plan.header.policy, due)


def due_after(state: PlannedState, plan: Plan) -> NextDue | None:
    """The next due instant after a pass; None: more is due at the instant of the pass, or it is not certain.

    It is certain after a pass that only dropped whole files, if metadata alone shows that nothing more is due.

    Args:
        state: the state that the pass was planned from.
        plan: the pass.
    """
    files = plan.actions.files
    if plan.sets_sequences or not files["removed_messages"].equals(files["messages"]):
        return None
    left = _decide_left(state, plan)
    if left is None:
        return None
    segments = plan.header.segments
    return next_due_of(plan, left, state.counters, state.tail, segments.rewritten + segments.kept)


def _decide_left(state: PlannedState, plan: Plan) -> Evaluation | None:
    """The decision that nothing more is due after a pass; None: something is, or rows or subjects decide."""
    header, tail = plan.header, state.tail
    policy = prefix_policy(header.policy, tail.messages, tail.bytes)
    if policy is None or state.decided.subjects != NO_FACTS:
        return None
    spans = _left(state.decided.spans, plan)
    if spans is None:
        return None
    decided = evaluate(spans, policy, header.as_of_ns)
    answers = unread_answers(decided) if policy.whole_segments else []
    if len(answers) < np.count_nonzero(decided.ask):
        return None
    whole = decided.whole(stop_of(answers))
    if policy.whole_segments:
        whole = _spent(spans, whole, state.counters.open_base)
    if whole.any():
        return None
    return None if tail.segments and not ends_in_prefix(decided) else decided


def _left(spans: Spans, plan: Plan) -> Spans | None:
    """The spans that a pass left; None: it dropped only some files of one."""
    dropped = np.sort(plan.actions.files["min_seq"].to_numpy())
    at = np.searchsorted(dropped, spans.min_seq)
    goes = dropped[np.minimum(at, len(dropped) - 1)] == spans.min_seq
    if np.diff(spans.first_file)[goes].sum() != plan.actions.files.num_rows:
        return None
    return some_spans(spans, ~goes)


def _spent(spans: Spans, whole: Array, open_base: Mapping[int, int]) -> Array:
    """For each segment, whether it is sealed and all of its spans are in `whole`, a mask."""
    if not len(spans):
        return whole
    new = (np.diff(spans.partition) != 0) | (np.diff(spans.segment) != 0)
    starts = np.append(0, np.flatnonzero(new) + 1)
    bases = [open_base.get(partition, 0) for partition in spans.partition[starts].tolist()]
    return (spans.segment[starts] < np.array(bases)) & np.logical_and.reduceat(whole, starts)
