"""The next due instant after a pass: decided from the files that it left, so that the next run opens nothing."""

from __future__ import annotations

import numpy as np

from retention.context.context import OpenedStream
from retention.core.spans import Spans, some_spans
from retention.plan.plan import Plan
from retention.planners.afresh import next_due_of
from retention.planners.cached import Planned, PlannedState
from retention.ports import Snapshot
from retention.rules.jetstream.evaluate import evaluate
from retention.rules.jetstream.prefix_scan import prefix_policy
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

    It is certain after a pass that only dropped whole files, under rules that know no subjects.

    Args:
        state: the state that the pass was planned from.
        plan: the pass.
    """
    files = plan.actions.files
    if plan.sets_sequences or not files["removed_messages"].equals(files["messages"]):
        return None
    header, tail = plan.header, state.tail
    policy = prefix_policy(header.policy, tail.messages, tail.bytes)
    spans = _left(state.decided.spans, plan)
    if policy is None or spans is None or state.decided.subjects != NO_FACTS:
        return None
    decided = evaluate(spans, policy, header.as_of_ns)
    segments = header.segments.rewritten + header.segments.kept
    return next_due_of(plan, decided, state.counters, tail, segments)


def _left(spans: Spans, plan: Plan) -> Spans | None:
    """The spans that a pass left; None: it dropped only some files of one."""
    dropped = np.sort(plan.actions.files["min_seq"].to_numpy())
    at = np.searchsorted(dropped, spans.min_seq)
    goes = dropped[np.minimum(at, len(dropped) - 1)] == spans.min_seq
    if np.diff(spans.first_file)[goes].sum() != plan.actions.files.num_rows:
        return None
    return some_spans(spans, ~goes)
