"""The context of a plan: all that is read before planning begins."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.plan.consumer_snapshot import ConsumerSnapshot

NO_CONSUMERS = ConsumerSnapshot()


@dataclass(frozen=True)
class PlanningContext:
    """A stream at one version, what its configuration wants of it, and when."""

    inventory: Inventory
    """The stream, or its oldest segments."""
    policy: Policy
    as_of_ns: int
    """The pass's one instant, nanoseconds since the epoch."""
    consumers: ConsumerSnapshot = NO_CONSUMERS
    """The consumers, with what each needs; none where the policy does not look at them."""
    next_seq: int = 0
    """The sequence of the first delete marker that the pass stores; 0 where the policy stores none."""
