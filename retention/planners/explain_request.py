"""Why one message stays or goes in a removal that people asked for."""

from __future__ import annotations

import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.subjects import matches
from retention.plan.plan import Plan
from retention.planners.explain import Explanation, find
from retention.planners.explain_topic import explain_removal
from retention.rules.iggy.delete_segments import DeleteSegments
from retention.rules.requests import Delete, MessageRequest, Purge, Request


def explain_asked(
    opened: OpenedStream, plan: Plan, request: Request, seq: int, partition: int = 0
) -> Explanation:
    """Explain one message, as a planned removal would treat it.

    Raises:
        UsageError: no message with that sequence is in the stream.
        DamagedError: a file cannot be read.
    """
    if isinstance(request, DeleteSegments):
        return explain_removal(opened, plan, request, (partition, seq))
    if isinstance(request, Purge) and opened.config.topic is not None:
        return explain_removal(opened, plan, request, (partition, seq))
    inventory = opened.store.inventory(opened.store.snapshot())
    row, rows, _ = find(opened, inventory, (partition, seq))
    message = rows.slice(row, 1).to_pylist()[0]
    facts = _facts(plan, request, seq, message["subject"])
    goes = all(holds for holds, _ in facts)
    lines = tuple(line for _, line in facts)
    told = "; ".join(line for holds, line in facts if not holds)
    named = f"{plan.stream} {seq:,} ({message['subject']})"
    return Explanation(
        stream=plan.stream,
        partition=partition,
        seq=seq,
        subject=message["subject"],
        ts_ns=message["ts_ns"],
        size=message["size"],
        goes=goes,
        rule=request.rule if goes else None,
        sentence=f"{named} goes: {request.wording}."
        if goes
        else f"{named} stays: {request.wording}: {told}.",
        arithmetic=lines,
    )


def _facts(plan: Plan, request: MessageRequest, seq: int, subject: str) -> list[tuple[bool, str]]:
    """What the request compares about a message: whether it lets it go, and the words for it."""
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
    """Of all that match, a purge takes the lowest, up to some sequence."""
    ends = [pc.max(plan.drops["max_seq"]).as_py(), pc.max(plan.removed["last_seq"]).as_py()]
    last = max((end for end in ends if end is not None), default=0)
    if seq <= last:
        return True, f"the purge reaches up to {last:,}"
    if request.keep is not None:
        return False, f"it is one of the newest {request.keep:,}, or newer than the plan"
    return False, "it is newer than the plan"
