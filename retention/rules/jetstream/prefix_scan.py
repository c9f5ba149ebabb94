"""Passes decided from a stream's oldest segments: their equivalent limits, and whether the rest matters."""

from __future__ import annotations

from retention.core.policy import Policy
from retention.rules.fold import Evaluation
from retention.rules.jetstream.evaluate import ORDER


def prefix_policy(policy: Policy, messages: int, total_bytes: int) -> Policy | None:
    """The policy for the head of a stream that is equivalent to a policy for the whole stream.

    Args:
        policy: the stream's.
        messages: the number of messages after the head.
        total_bytes: the bytes of these messages.

    Returns:
        None if the messages after the head alone exceed a limit, so that the pass extends beyond the head.
    """
    ahead: Policy | None = policy
    for rule in ORDER:
        ahead = None if ahead is None else rule.ahead_of(ahead, messages, total_bytes)
    return ahead


def ends_in_prefix(decided: Evaluation) -> bool:
    """Whether a pass over a head certainly removes nothing after it."""
    return all(decision.ends_within() for decision in decided.decisions)
