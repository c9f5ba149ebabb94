"""Explanation of one message by consumers: the consumers that need it or hold it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from retention.core.policy import ConsumerProtection, Policy
from retention.core.units import format_duration, format_size
from retention.rules.jetstream.interest import Interest, released_rows
from retention.rules.jetstream.protection import Protection


def needs_line(
    message: pa.Table, policy: Policy, interests: Sequence[Interest]
) -> tuple[bool, str]:
    """Whether consumers release a message, and a line that names the consumers in need of it.

    Args:
        message: one row with `seq` and `subject`.
        policy: the stream's rules.
        interests: the interests of its consumers.
    """
    goes = bool(released_rows(message, interests, policy.unmatched)[0])
    return goes, f"{policy.retention}: {_who(message, policy, interests)}"


def _who(message: pa.Table, policy: Policy, interests: Sequence[Interest]) -> str:
    if not interests:
        return "the stream has no consumer that could have settled it"
    seqs = message["seq"].to_numpy()
    wanting = [interest for interest in interests if interest.matches(message["subject"])[0]]
    needing = [interest.consumer for interest in wanting if interest.needs(seqs)[0]]
    if needing:
        return f"{' and '.join(needing)} still {'needs' if len(needing) == 1 else 'need'} it"
    if wanting:
        return f"every consumer that wants it has settled it ({', '.join(interest.consumer for interest in wanting)})"
    return f"no consumer's filter matches it, and unmatched is {policy.unmatched}"


def protection_line(
    message: pa.Table, rule: ConsumerProtection, hold: Protection, missing: Sequence[str]
) -> tuple[bool, str]:
    """Whether a message is held, and a line that names the consumers.

    Args:
        message: one row with `seq`, `subject` and `ts_ns`.
        rule: the rule that protects messages from limits.
        hold: the protection by `rule` in the pass.
        missing: consumers that `rule` names but that do not exist.
    """
    needing = [
        f"{interest.consumer} (which does not exist)"
        if interest.consumer in missing
        else interest.consumer
        for interest in hold.interests
        if interest.matches(message["subject"])[0] and interest.needs(message["seq"].to_numpy())[0]
    ]
    if not needing:
        return False, "hold_for_consumers: no protected consumer needs it"
    verb = "needs" if len(needing) == 1 else "need"
    held = bool(hold.covers(message).any())
    return (
        held,
        f"hold_for_consumers: {' and '.join(needing)} still {verb} it{_until(message, rule, hold)}",
    )


def _until(message: pa.Table, rule: ConsumerProtection, hold: Protection) -> str:
    """The effect of a consumer's need for a message, as a clause."""
    if message["ts_ns"][0].as_py() <= hold.after_ns:
        return f", but messages are held only until they are {format_duration(rule.max_age_ns or 0)} old"
    if message["seq"][0].as_py() < hold.from_seq:
        size = format_size(rule.max_bytes or 0)
        return f", but newer messages already fill the {size} that may be held"
    if rule.action == "warn":
        return ", but limits remove it nevertheless (action: warn)"
    return ", so no limit removes it"
