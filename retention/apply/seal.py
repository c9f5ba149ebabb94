"""Sealing active segments of the age `roll_after`, so that a topic with few writes expires."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np

from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.spans import Array
from retention.core.table_updates import set_next_seqs, set_open_bases
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.errors import BusyError, ConflictError, StalePlanError
from retention.layout.topic_segment_roll import aged_mask
from retention.plan.ahead_of_clock import ahead_of_clock
from retention.plan.plan import Plan
from retention.planners.topic import segments_of
from retention.ports import Snapshot, Swap
from retention.rules.iggy.segments import TopicSegments
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage.crash_points import Step, reached

ATTEMPTS = 20


def seal_aged(opened: OpenedStream, as_of_ns: int) -> bool:
    """Seal the active segments of a topic with an old enough first message; return whether there were any.

    Args:
        opened: the stream or topic, which exists.
        as_of_ns: the instant of the pass.

    Raises:
        BusyError: other commits kept coming first.
    """
    topic = opened.config.policy().topic
    if topic is None or topic.roll_after_us is None:
        return False

    def aged(segments: TopicSegments) -> Array:
        return aged_mask(segments.first_us, topic, as_of_ns // MICROSECOND)

    return _seal(opened, topic, aged)


def seal_ahead(opened: OpenedStream, now_ns: int) -> bool:
    """Seal the active segments of a topic that have times ahead of the clock; return whether there were any.

    Messages appended afterwards begin a segment, with the time of the clock.

    Args:
        opened: the topic, which exists.
        now_ns: the clock, nanoseconds since the epoch.

    Raises:
        BusyError: other commits kept coming first.
    """
    topic = opened.config.policy().topic
    if topic is None:
        return False

    def ahead(segments: TopicSegments) -> Array:
        partitions = ahead_of_clock(segments, topic, now_ns)
        return np.isin(
            segments.partition, [stamped.partition for stamped in partitions if stamped.is_open]
        )

    return _seal(opened, topic, ahead)


def _seal(
    opened: OpenedStream, topic: TopicPolicy, chosen: Callable[[TopicSegments], Array]
) -> bool:
    """Seal the chosen active segments that are not empty; return whether there were any."""
    for _ in range(ATTEMPTS):
        snapshot = opened.store.snapshot()
        behind = _behind(opened.store.inventory(snapshot), topic, chosen)
        if not behind:
            return False
        swap = Swap(
            remove=LOGGED_FILES.empty_table(),
            add=FILE_STATS.empty_table(),
            metadata={"run": f"seal-{uuid.uuid4().hex}", "sealed": len(behind)},
            updates=[*set_next_seqs(behind), *set_open_bases(behind)],
        )
        try:
            opened.store.commit(swap, snapshot)
        except (ConflictError, StalePlanError):
            continue
        reached(Step.SEGMENTS_SEALED)
        return True
    raise BusyError(
        f"{opened.name}: other writers committed first {ATTEMPTS} times in a row; nothing was sealed or removed; try "
        "again, or pause the other writers"
    )


def check_whole(opened: OpenedStream, plan: Plan, snapshot: Snapshot) -> None:
    """Refuse a plan that covers only part of a topic's segment, or an active one: messages were appended since.

    A purge removes everything, and is exempt.

    Raises:
        StalePlanError: naming one.
    """
    if opened.config.topic is None or plan.header.begins_epoch:
        return
    planned = plan.actions.files.group_by(["partition", "segment"]).aggregate([([], "count_all")])
    live = snapshot.files.group_by(["partition", "segment"]).aggregate([([], "count_all")])
    counts = {(row["partition"], row["segment"]): row["count_all"] for row in live.to_pylist()}
    for row in planned.to_pylist():
        place = row["partition"], row["segment"]
        is_active = snapshot.counters.open_base.get(place[0], 0) <= place[1]
        if is_active or counts[place] != row["count_all"]:
            raise StalePlanError(
                f"{opened.name}: messages were stored in segment {place[1]} of partition {place[0]} since this plan "
                "was made; nothing was changed; plan again"
            )


def _behind(
    inventory: Inventory, topic: TopicPolicy, chosen: Callable[[TopicSegments], Array]
) -> dict[int, int]:
    """Partition → the next offset, for each partition with an active segment to seal."""
    segments = segments_of(inventory.files, inventory.counters.open_base, topic.partitions)
    sealing = np.flatnonzero(~segments.sealed & chosen(segments))
    partitions: list[int] = segments.partition[sealing].tolist()
    ends: list[int] = (segments.end[sealing] + 1).tolist()
    counted = inventory.counters.next_seq
    return {
        partition: max(counted.get(partition, 0), end)
        for partition, end in zip(partitions, ends, strict=True)
    }
