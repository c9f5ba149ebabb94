"""Deciding a pass from a stream's oldest segments: which limits they see, and whether what lies behind matters."""

from __future__ import annotations

from dataclasses import replace

from retention.core.policy import Policy
from retention.rules.jetstream.evaluate import OnePass


def before(policy: Policy, messages: int, total_bytes: int) -> Policy | None:
    """The policy as the head of a stream has to keep it, so that the whole stream keeps the given one.

    Every rule but the limit per subject takes the lowest sequences first, so what lies behind the head only uses up
    part of a limit.

    Args:
        policy: the stream's.
        messages: how many lie behind the head.
        total_bytes: how many bytes they have.

    Returns:
        None if what lies behind exceeds a limit by itself, so that the pass reaches beyond the head.
    """
    max_msgs = None if policy.max_msgs is None else policy.max_msgs - messages
    max_bytes = None if policy.max_bytes is None else policy.max_bytes - total_bytes
    if policy.discard == "old" and min(max_msgs or 0, max_bytes or 0) < 0:
        return None
    return replace(policy, max_msgs=max_msgs, max_bytes=max_bytes)


def ends_before(decided: OnePass) -> bool:
    """Whether a pass over a head surely takes nothing of what lies behind.

    The age scan, if any, ends in the head; deadlines pass anywhere.
    """
    ages_end = decided.age is None or decided.age.reach < len(decided.spans)
    return ages_end and decided.ttl is None
