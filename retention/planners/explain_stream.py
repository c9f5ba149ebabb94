"""Explanation of one message of a stream by the plan of a pass, or of a requested removal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from retention.core.subjects import matches
from retention.errors import MissingMessageError
from retention.plan.explanation import Explanation, explanation
from retention.plan.plan import Plan
from retention.planners.explain_pass import explain_behind, explain_message, removed_by
from retention.planners.explain_replay import explain_replayed
from retention.planners.plan_rows import MessageContext, MessageRef, PlanRows
from retention.rules.purge_deletes import PurgeDeletes
from retention.rules.requests import Delete, Purge


@dataclass(frozen=True)
class StreamExplainer:
    """Explanations by a stream's plan; implements `Explainer`."""

    plan: Plan

    def planned(self, rows: PlanRows, around: MessageContext) -> Explanation:
        """Explain a message in a file of the plan."""
        request = self.plan.header.request
        if isinstance(request, Purge | Delete):
            return _explain_requested(self.plan, request, around.message)
        if isinstance(request, PurgeDeletes):
            return _explain_purge_deletes(self.plan, request, around)
        if self.plan.header.policy.mode == "replay" and request is None:
            return explain_replayed(self.plan, around)
        return explain_message(rows, around)

    def behind(self, message: dict[str, object], line: str) -> Explanation:
        """Explain a message in a file unknown to the plan, kept because of `line`."""
        return explain_behind(self.plan, message, line)

    def named(self, message: dict[str, object]) -> str:
        """The name of a message in sentences: its stream, sequence and subject."""
        return f"{self.plan.header.stream} {message['seq']:,} ({message['subject']})"

    def missing(self, ref: MessageRef) -> MissingMessageError:
        """The error for a missing message."""
        plan, cause = self.plan, self.plan.cause
        if not plan.header.table_id:
            return MissingMessageError(
                f"{plan.header.stream}: the stream holds nothing yet, so there is no message {ref[1]}"
            )
        held, files = "none", cause.files
        if files.num_rows:
            end = cause.end(0) if cause.tail.segments else pc.max(files["max_seq"]).as_py() + 1
            held = f"{files['min_seq'][0].as_py():,} to {end - 1:,}"
        return MissingMessageError(
            f"{plan.header.stream}: there is no message {ref[1]} (sequences held: {held}); it was never stored, or an "
            "earlier run or the broker removed it: `retention history` lists the runs"
        )


def _explain_purge_deletes(
    plan: Plan, request: PurgeDeletes, around: MessageContext
) -> Explanation:
    """Explain one message by a planned purge of deleted keys."""
    message = around.message
    goes, _ = removed_by(plan, around)
    named = f"{plan.header.stream} {message['seq']:,} ({message['subject']})"
    deleted = (
        "its key is deleted"
        if goes
        else "its key has a value, or it is a deletion that is too young"
    )
    verb = "is removed" if goes else "is kept"
    rule = request.rule if goes else None
    return explanation(
        plan.header.stream, message, rule, f"{named} {verb}: {request.wording}.", (deleted,)
    )


def _explain_requested(
    plan: Plan, request: Purge | Delete, message: Mapping[str, Any]
) -> Explanation:
    """Explain one message by a planned removal.

    Args:
        plan: the plan.
        request: the request of the plan.
        message: its narrow columns.
    """
    seq, subject = message["seq"], message["subject"]
    facts = _facts_of_request(plan, request, seq, subject)
    goes = all(holds for holds, _ in facts)
    named = f"{plan.header.stream} {seq:,} ({subject})"
    why = "; ".join(line for holds, line in facts if not holds)
    return explanation(
        plan.header.stream,
        message,
        request.rule if goes else None,
        f"{named} is removed: {request.wording}."
        if goes
        else f"{named} is kept: {request.wording}: {why}.",
        tuple(line for _, line in facts),
    )


def _facts_of_request(
    plan: Plan, request: Purge | Delete, seq: int, subject: str
) -> list[tuple[bool, str]]:
    """Comparisons of the request with a message: whether each allows the removal, and a line about it."""
    if isinstance(request, Delete):
        named = seq in request.seqs
        return [(named, f"its sequence is {'' if named else 'not '}named")]
    facts = []
    if request.subject is not None:
        fits = matches(request.subject, subject)
        facts.append(
            (fits, f"its subject {'matches' if fits else 'does not match'} {request.subject}")
        )
    if request.seq is not None:
        below = seq < request.seq
        facts.append((below, f"it is {'' if below else 'not '}below sequence {request.seq:,}"))
    if all(fits for fits, _ in facts):
        facts.append(_reach(plan, request, seq))
    return facts


def _reach(plan: Plan, request: Purge, seq: int) -> tuple[bool, str]:
    """Whether a purge reaches a message, and a line about it; a purge removes the lowest matches, up to a sequence."""
    ends = [
        pc.max(plan.actions.drop.files["max_seq"]).as_py(),
        plan.actions.removed.last_seq(),
    ]
    last = max((end for end in ends if end is not None), default=0)
    if seq <= last:
        return True, f"the purge reaches up to {last:,}"
    return False, f"it is one of the newest {request.keep or 0:,}"
