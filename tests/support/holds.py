"""Holds in small worlds, and their held messages, message by message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from retention.core.policy import ConsumerProtection, Policy
from retention.rules.jetstream.interest import Interest
from tests.support.interests import needs
from tests.support.worlds import Message, World, update

rules = st.builds(
    ConsumerProtection,
    consumers=st.none()
    | st.sets(st.sampled_from(["c0", "c1", "c2", "gone"]), min_size=1).map(tuple),
    max_age_ns=st.none() | st.integers(1, 25),
    max_bytes=st.none() | st.integers(1, 40),
)


@dataclass(frozen=True)
class Spared:
    """The removals of a pass from a world under a hold, and the held messages."""

    gone: dict[int, str]
    held: dict[int, str]
    """Sequence → the rule that would remove it."""
    held_for: dict[tuple[str, str], int]
    """Consumer and rule → messages."""


def who_holds(
    message: Message, rule: ConsumerProtection, interests: Sequence[Interest], as_of_ns: int
) -> list[str]:
    """The consumers that a message is held for, regardless of room."""
    if rule.max_age_ns is not None and message.ts_ns <= as_of_ns - rule.max_age_ns:
        return []
    there = [one for one in interests if rule.consumers is None or one.consumer in rule.consumers]
    missing = set(rule.consumers or ()) - {one.consumer for one in interests}
    return [
        *(one.consumer for one in there if needs(one, message.seq, message.subject)),
        *missing,
    ]


def spared(
    world: World,
    policy: Policy,
    as_of_ns: int,
    rule: ConsumerProtection,
    interests: Sequence[Interest],
) -> Spared:
    """A pass, computed without the hold and then reduced by it."""
    gone = update(world.messages, replace(policy, hold=None), as_of_ns)
    held = [m for m in world.messages if m.seq in gone and who_holds(m, rule, interests, as_of_ns)]
    while rule.max_bytes is not None and sum(m.size for m in held) > rule.max_bytes:
        held.pop(0)
    counts: dict[tuple[str, str], int] = {}
    for message in held:
        for consumer in who_holds(message, rule, interests, as_of_ns):
            key = (consumer, gone[message.seq])
            counts[key] = counts.get(key, 0) + 1
    kept = {m.seq: gone[m.seq] for m in held}
    return Spared({seq: one for seq, one in gone.items() if seq not in kept}, kept, counts)
