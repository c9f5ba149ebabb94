"""What consumers say of one message, in words."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from retention.policy import Policy
from retention.rules.release import Interest, released


def needs_of(message: pa.Table, policy: Policy, interests: Sequence[Interest]) -> tuple[bool, str]:
    """Whether consumers let a message go, and who needs it.

    Args:
        message: one row with `seq` and `subject`.
        policy: the stream's rules.
        interests: of its consumers.
    """
    goes = bool(released(message, interests, policy.unmatched)[0])
    return goes, f"{policy.retention}: {_who(message, policy, interests)}"


def _who(message: pa.Table, policy: Policy, interests: Sequence[Interest]) -> str:
    if not interests:
        return "the stream has no consumer, so that nobody can have settled it"
    seqs = message["seq"].to_numpy()
    wanting = [one for one in interests if one.matches(message["subject"])[0]]
    needing = [one.consumer for one in wanting if one.needs(seqs)[0]]
    if needing:
        return f"{' and '.join(needing)} still {'needs' if len(needing) == 1 else 'need'} it"
    if wanting:
        return f"whoever wants it has settled it ({', '.join(one.consumer for one in wanting)})"
    return f"no consumer's filter matches it, and unmatched is {policy.unmatched}"
