"""Consumers of small worlds in any state, and the server's predicate on a message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from retention.consumers.state import PENDING, REDELIVERED, ConsumerState, DeliveryPosition
from retention.core.policy import Unmatched
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord
from tests.support.worlds import World

SUBJECTS = ["a", "b", "a.b"]


def seqs_of(world: World) -> list[int]:
    return [message.seq for message in world.messages]


@st.composite
def interests_of(draw: st.DrawFn, world: World) -> list[Interest]:
    """Draw up to three consumers in any state."""
    known = seqs_of(world)
    anywhere = st.integers(0, max(known, default=0))
    subjects = sorted({message.subject for message in world.messages}) or SUBJECTS
    found = []
    for number in range(draw(st.integers(0, 3))):
        floor = draw(anywhere)
        delivered = max(floor, draw(anywhere))
        between = [seq for seq in known if floor < seq <= delivered]
        pending = draw(st.sets(st.sampled_from(between))) if between else set()
        below = [seq for seq in known if seq <= delivered]
        redelivered = draw(st.sets(st.sampled_from(below), max_size=2)) if below else set()
        found.append(
            Interest(
                consumer=f"c{number}",
                ack_floor=floor,
                delivered=delivered,
                filters=tuple(
                    draw(st.sets(st.sampled_from([*subjects, "never.there"]), max_size=2))
                ),
                explicit=draw(st.booleans()),
                pending=np.array(sorted(pending), dtype=np.int64),
                redelivered=np.array(sorted(redelivered), dtype=np.int64),
            )
        )
    return found


def needs(one: Interest, seq: int, subject: str) -> bool:
    """The server's `needAck`, transcribed."""
    if one.filters and subject not in one.filters:
        return False
    needed = seq > one.ack_floor
    if one.explicit:
        needed = needed and (seq > one.delivered or seq in one.pending)
    return needed or seq in one.redelivered


def goes(interests: Sequence[Interest], seq: int, subject: str, unmatched: Unmatched) -> bool:
    wanted = any(not one.filters or subject in one.filters for one in interests)
    if not interests or (not wanted and unmatched == "keep"):
        return False
    return not any(needs(one, seq, subject) for one in interests)


def record_of(one: Interest) -> ConsumerRecord:
    """The record of a consumer with this interest."""
    pending, redelivered = one.pending.tolist(), one.redelivered.tolist()
    return ConsumerRecord(
        one.consumer,
        {
            "durable_name": one.consumer,
            "ack_policy": "explicit" if one.explicit else "all",
            "filter_subjects": list(one.filters),
        },
        ConsumerState(
            delivered=DeliveryPosition(one.delivered, one.delivered),
            ack_floor=DeliveryPosition(one.ack_floor, one.ack_floor),
            pending=pa.table([pending, pending, [0] * len(pending)], schema=PENDING),
            redelivered=pa.table([redelivered, [1] * len(redelivered)], schema=REDELIVERED),
        ),
        revision=1,
    )
