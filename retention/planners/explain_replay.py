"""Explanation of one message of a stream whose passes replay: what the server did with it, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.units import format_instant
from retention.plan.explanation import Explanation, explanation
from retention.plan.plan import Plan
from retention.planners.explain_pass import removed_by
from retention.planners.plan_rows import MessageContext
from retention.rules.replay.fates import DUPLICATE, REFUSED

_HOLDS = "a server that has applied these limits at each publish holds it at that instant"


def explain_replayed(plan: Plan, around: MessageContext) -> Explanation:
    """Explain a message in a file of the plan, by the plan alone: it has the rule, and not the instant."""
    message = around.message
    goes, rules = removed_by(plan, around)
    named = f"{plan.header.stream} {message['seq']:,} ({message['subject']})"
    if not goes:
        line = _HOLDS if not plan.kept_by_holds else f"{_HOLDS}, or a legal hold keeps it here"
        return explanation(plan.header.stream, message, None, f"{named} is kept: {line}.", (line,))
    line = f"a server that has applied these limits at each publish does not hold it ({rules[0]})"
    wording = f"{named} is removed: {line}."
    return explanation(plan.header.stream, message, rules[0], wording, (line,))


def with_fate(explained: Explanation, gone: pa.Table) -> Explanation:
    """The explanation of a message, with what the server did with it.

    Args:
        explained: the explanation by the plan.
        gone: the messages that the server does not hold, shape `GONE`.
    """
    rows = gone.filter(pc.equal(gone["seq"], explained.seq)).to_pylist()
    named = f"{explained.stream} {explained.seq:,} ({explained.subject})"
    if not rows:
        return replace(explained, sentence=f"{named} is kept: {_HOLDS}.", arithmetic=(_HOLDS,))
    line = f"a server with these limits {fate_line(rows[0])}"
    if not explained.goes:
        return replace(explained, arithmetic=(*explained.arithmetic, line))
    return replace(explained, sentence=f"{named} is removed: {line}.", arithmetic=(line,))


def fate_line(fate: Mapping[str, Any]) -> str:
    """The deed of a server on a message that it does not hold (a row of `GONE`), as a verb with its object."""
    if fate["fate"] == REFUSED:
        code = "" if fate["code"] is None else f" (error code {fate['code']})"
        return f"would have refused it: {fate['reason']}{code}"
    if fate["fate"] == DUPLICATE:
        original = fate["by_server_seq"]
        return f"would have answered it as a duplicate of its message {original:,}"
    by = fate["by_server_seq"]
    when = "" if by is None else f", when it stored its message {by:,}"
    return (
        f"would have removed it by {fate['reason']} at {format_instant(fate['removed_ns'])}{when}"
    )
