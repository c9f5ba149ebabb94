"""Limits lowered since the last pass, and the removals caused by each, from plans with the former limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from retention.config import StreamConfig
from retention.config.topic_stream import TopicStream
from retention.config.types import UNLIMITED
from retention.context.context import OpenedStream
from retention.core import iggy_units
from retention.history.runs import history_of
from retention.plan.lowered import LimitChange, LoweredLimit, lowered_since
from retention.plan.plan import Plan


def lowered_limits(
    opened: OpenedStream, plan: Plan, plan_as: Callable[[StreamConfig], Plan]
) -> tuple[LoweredLimit, ...]:
    """List the lowered limits, each with its additional removals over a pass with all former limits.

    Example: limits 10 and 20 were lowered to 5 and 15, and a pass removes 30 messages. With 10 and
    20 it removes 12, with 5 and 20 it removes 30, with 10 and 15 it removes 17. So the first limit
    accounts for 18 messages, the second for 5.

    Args:
        opened: the stream.
        plan: the pass.
        plan_as: plans the pass by another configuration.

    Raises:
        DamagedError: a record of the run history, or a required file, is damaged.
    """
    if not plan.header.table_id:
        return ()
    history = history_of(opened.warehouse, opened.name)
    changes = lowered_since(history.last_applied_policy(), plan.header.policy)
    if not changes:
        return ()
    before = plan_as(_as_before(opened.config, changes))
    return tuple(
        _lowered(opened.config, changes, change, plan, before, plan_as) for change in changes
    )


def _lowered(
    config: StreamConfig,
    changes: tuple[LimitChange, ...],
    change: LimitChange,
    plan: Plan,
    before: Plan,
    plan_as: Callable[[StreamConfig], Plan],
) -> LoweredLimit:
    others = [other for other in changes if other is not change]
    alone = plan_as(_as_before(config, others)) if others else plan
    # A message replaced or evicted by a marker may be removed by one policy and kept by a stricter one.
    return LoweredLimit(
        **vars(change),
        removed_messages=max(alone.removed_messages - before.removed_messages, 0),
        removed_bytes=max(alone.removed_bytes - before.removed_bytes, 0),
    )


def _as_before(config: StreamConfig, changes: Iterable[LimitChange]) -> StreamConfig:
    """A configuration with some limits at their former values."""
    if isinstance(config, TopicStream):
        limits = {change.limit: change.before or iggy_units.UNLIMITED for change in changes}
        return config.model_copy(update={"of": config.of.model_copy(update=limits)})
    values: dict[str, object] = {}
    for change in changes:
        unlimited = 0 if change.unit == "ns" else UNLIMITED
        values[change.limit] = unlimited if change.before is None else change.before
    return config.model_copy(update=values)
