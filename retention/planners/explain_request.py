"""Explaining why one message stays or goes in a removal that people asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from retention.core.subjects import matches
from retention.plan.explanation import Explanation, explanation
from retention.plan.plan import Plan
from retention.rules.requests import Delete, MessageRequest, Purge


def explain_requested(
    plan: Plan, request: MessageRequest, message: Mapping[str, Any]
) -> Explanation:
    """Explain one message, as a planned removal treats it.

    Args:
        plan: what was planned.
        request: what it carries out.
        message: its narrow columns.
    """
    seq, subject = message["seq"], message["subject"]
    facts = _facts(plan, request, seq, subject)
    goes = all(holds for holds, _ in facts)
    named = f"{plan.stream} {seq:,} ({subject})"
    why = "; ".join(line for holds, line in facts if not holds)
    return explanation(
        plan.stream,
        message,
        request.rule if goes else None,
        f"{named} goes: {request.wording}."
        if goes
        else f"{named} stays: {request.wording}: {why}.",
        tuple(line for _, line in facts),
    )


def _facts(plan: Plan, request: MessageRequest, seq: int, subject: str) -> list[tuple[bool, str]]:
    """Facts that the request compares about a message: whether each lets it go, and the words for it."""
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
    """Whether a purge reaches a message, and the words: of all that match, it takes the lowest, up to some sequence."""
    ends = [
        pc.max(plan.actions.drop.files["max_seq"]).as_py(),
        pc.max(plan.removed["last_seq"]).as_py(),
    ]
    last = max((end for end in ends if end is not None), default=0)
    if seq <= last:
        return True, f"the purge reaches up to {last:,}"
    return False, f"it is one of the newest {request.keep or 0:,}"
