"""The context of a plan: all input that is read before planning."""

from __future__ import annotations

from dataclasses import dataclass

from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.plan.consumer_snapshot import ConsumerSnapshot
from retention.rules.holds import NO_HOLDS, LegalHolds
from retention.rules.veto import Veto

NO_CONSUMERS = ConsumerSnapshot()


@dataclass(frozen=True)
class PlanningContext:
    """A stream at one version, its configuration, and the instant of the pass."""

    inventory: Inventory
    """The stream, or its oldest segments."""
    policy: Policy
    as_of_ns: int
    """The pass's one instant, nanoseconds since the epoch."""
    consumers: ConsumerSnapshot = NO_CONSUMERS
    """The consumers and their needs; empty if the policy does not use them."""
    next_seq: int = 0
    """The sequence of the first delete marker of the pass; 0 if the policy stores none."""
    vetoes: tuple[Veto, ...] = ()
    """The reasons to keep messages from every rule, in addition to the policy's consumer protection."""
    holds: LegalHolds = NO_HOLDS
    """The legal holds in effect: the first veto."""

    @property
    def all_vetoes(self) -> tuple[Veto, ...]:
        """All vetoes; legal holds are the first one."""
        return (*self.holds.vetoes, *self.vetoes)
