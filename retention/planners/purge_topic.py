"""From a purge of a topic to the plan that carries it out: every file goes, and offsets count from 0 again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from retention.context.context import OpenedStream
from retention.context.topic import has_data
from retention.plan.build import make_topic_plan
from retention.plan.plan import empty_plan
from retention.planners.cached import Planned
from retention.rules import PURGE, RULES
from retention.rules.requests import Purge


def plan_purge_topic(opened: OpenedStream, request: Purge) -> Planned:
    """Plan the removal of all that a topic holds, whoever has read it (iggy `PurgeTopic`).

    Raises:
        RefusedError, DamagedError: as planning a pass.
    """
    policy, now_ns = opened.config.policy(), opened.clock()
    if not opened.store.exists():
        plan = empty_plan(opened.name, now_ns, policy)
        header = replace(plan.header, request=request)
        return Planned(replace(plan, header=header), {}, None)
    snapshot = opened.store.snapshot()
    inventory = opened.store.inventory(snapshot)
    rules = np.full(inventory.files.num_rows, RULES.index(PURGE))
    plan = make_topic_plan(inventory, policy, now_ns, rules, None)
    begins, counted = has_data(opened, snapshot), inventory.counters.next_seq
    header = replace(plan.header, request=request, begins_epoch=begins)
    return Planned(replace(plan, header=header), counted, snapshot)
