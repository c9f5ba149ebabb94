"""Passes decided from a stream's oldest segments: the limits that they see, and whether the rest matters."""

from __future__ import annotations

from retention.core.policy import Policy
from retention.rules.fold import Evaluation
from retention.rules.jetstream.evaluate import ORDER


def prefix_policy(policy: Policy, messages: int, total_bytes: int) -> Policy | None:
    """The policy as the head of a stream has to keep it, so that the whole stream keeps the given one.

    Args:
        policy: the stream's.
        messages: how many lie behind the head.
        total_bytes: how many bytes they have.

    Returns:
        None if what lies behind exceeds a limit by itself, so that the pass reaches beyond the head.
    """
    ahead: Policy | None = policy
    for rule in ORDER:
        ahead = None if ahead is None else rule.ahead_of(ahead, messages, total_bytes)
    return ahead


def ends_in_prefix(decided: Evaluation) -> bool:
    """Whether a pass over a head surely takes nothing of what lies behind."""
    return all(decision.ends_within() for decision in decided.decisions)
