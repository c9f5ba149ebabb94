"""Explanation of the fate of one message: a line for each rule, and one sentence."""

from __future__ import annotations

from retention.core.policy import Policy
from retention.rules.facts import Facts
from retention.rules.jetstream.evaluate import ORDER

IN_KEPT_SEGMENT = "; but whole_segments is set, and its segment is open or has messages to keep"


def rule_lines(policy: Policy, facts: Facts) -> tuple[str, ...]:
    """A line for each rule of the policy, in the order of a pass.

    Args:
        policy: the stream's rules.
        facts: the message.
    """
    lines = (facts.needs, *(rule.line(policy, facts) for rule in ORDER), facts.held)
    return tuple(line for line in lines if line is not None)


def rule_of(policy: Policy, facts: Facts) -> str | None:
    """The first rule in the order of a pass that removes a message on its own; None: every rule keeps it.

    Args:
        policy: the stream's rules.
        facts: the message.
    """
    if facts.is_held or facts.refused:
        return None
    return next((rule.name for rule in ORDER if rule.takes_message(policy, facts)), None)


def sentence(stream: str, policy: Policy, facts: Facts, rule: str | None, *, goes: bool) -> str:
    """Explain in one sentence why a message is removed or kept.

    Args:
        stream: its stream.
        policy: the stream's rules.
        facts: the message.
        rule: the first rule that removes it on its own; None: no rule does.
        goes: whether the plan removes it.
    """
    named = f"{stream} {facts.seq:,} ({facts.subject})"
    lines = rule_lines(policy, facts)
    if rule is None:
        refused = "; but the delete marker that would announce it does not fit, so it is kept until one does"
        because = "; ".join(lines) if lines else "no limit is set"
        return f"{named} is kept: {because}{refused if facts.refused else ''}."
    because = next(line for line in lines if line.startswith((f"{rule} ", f"{rule}:")))
    if goes and facts.marker is not None:
        return f"{named} is removed: {because}; delete marker {facts.marker:,} announces it."
    if goes:
        return f"{named} is removed: {because}."
    return f"{named} is kept: {because}{IN_KEPT_SEGMENT}."
