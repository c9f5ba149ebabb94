"""From `delete-segments` to the plan that carries it out: which files of a topic go, and up to where it reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from retention.context.context import OpenedStream
from retention.context.topic import refuse_partition, topic_of
from retention.core.spans import Array
from retention.plan.build import make_topic_plan
from retention.plan.plan import empty_plan
from retention.plan.protected import ProtectedSegments
from retention.plan.protected_segments import protected_segments
from retention.planners.cached import Planned
from retention.planners.topic import TopicPlanning, pins_of, plan_topic_table, rules_of_files
from retention.rules.iggy.delete_segments import DeleteSegments, requested_fates
from retention.rules.iggy.evaluate import reached_by
from retention.rules.iggy.segments import STAYS, TopicSegments


def plan_delete_segments(opened: OpenedStream, request: DeleteSegments) -> Planned:
    """Plan the removal of a partition's oldest sealed segments, as far as everybody has read them.

    Raises:
        UsageError: it is no topic, or has no such partition.
        RefusedError, DamagedError: as planning a pass.
    """
    topic, now_ns = topic_of(opened).policy(), opened.clock()
    refuse_partition(opened, request.partition)
    policy = opened.config.policy()
    if not opened.store.exists():
        plan = empty_plan(opened.name, now_ns, policy)
        header = replace(plan.header, request=request)
        return Planned(replace(plan, header=header), {}, None)
    planning = plan_topic_table(opened, topic, now_ns)
    reaching = replace(request, up_to=_reach(planning.stored_segments, request))
    up_to = {} if reaching.up_to is None else {request.partition: reaching.up_to}
    barriers = planning.offsets.barriers if topic.respect_consumer_offsets else {}
    fates = requested_fates(planning.stored_segments, up_to, barriers)
    rules = rules_of_files(planning.inventory, planning.stored_segments, fates)
    plan = make_topic_plan(planning.inventory, policy, now_ns, rules, pins_of(planning.offsets))
    held = _held(planning, up_to, fates) if topic.respect_consumer_offsets else None
    counters = planning.inventory.counters
    header = replace(plan.header, request=reaching)
    plan = replace(plan, header=header, held_segments=held, cause=planning.plan.cause)
    return Planned(plan, counters.next_seq, planning.snapshot)


def _held(planning: TopicPlanning, up_to: Mapping[int, int], fates: Array) -> ProtectedSegments:
    """Segments that were asked for and stay, because somebody has not read them."""
    waiting = np.where(fates == STAYS, requested_fates(planning.stored_segments, up_to, {}), STAYS)
    rules = rules_of_files(planning.inventory, planning.stored_segments, waiting)
    return protected_segments(planning.inventory.files, rules, planning.offsets)


def _reach(segments: TopicSegments, request: DeleteSegments) -> int | None:
    parts = dict(segments.parts())
    part = parts.get(request.partition)
    return None if part is None else reached_by(segments, part, request.count)
