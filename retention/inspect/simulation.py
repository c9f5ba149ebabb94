"""Simulations of a stream or topic: passes by changed policies, at instants to come, from statistics or from rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.config.changed import changed_stream, replay_settings
from retention.context.context import OpenedStream
from retention.core.bounds import Bounds
from retention.core.inventory import Inventory
from retention.core.policy import Policy, describe
from retention.core.read_count import ReadCount
from retention.engines.select import Engines
from retention.errors import RefusedError, UsageError
from retention.plan.estimate_bounds import Estimate
from retention.plan.growth import Growth, grown, growth_of, mean_bytes, observed_growth
from retention.plan.simulation import (
    PassCost,
    PolicyVariant,
    SimulatedPass,
    SimulatedPolicy,
    Simulation,
    SimulationRequest,
)
from retention.planners.context import PlanningContext
from retention.planners.estimate import bounds_of_passes, exactly, refuse_undescribed
from retention.planners.growth_rows import GrownRows
from retention.planners.probe import StoredRows
from retention.planners.replayed import plan_replay
from retention.planners.retention import plan
from retention.planners.table import gather
from retention.planners.topic import TopicTable, plan_segments, read_topic, segments_of
from retention.replay.stored import stored_publishes
from retention.rules.acting import acting_rules, with_one_rule
from retention.rules.replay.publishes import Publishes


class _StoredPublishes:
    """The stored messages as publishes, read once for the replays of all instants."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Publishes, ReadCount]] = {}

    def read(
        self, opened: OpenedStream, inventory: Inventory, config: StreamConfig
    ) -> tuple[Publishes, ReadCount]:
        """The answer of `stored_publishes`."""
        key = repr((inventory.version, replay_settings(config)))
        if key not in self._known:
            self._known[key] = stored_publishes(opened, inventory, config)
        return self._known[key]


@dataclass(frozen=True)
class StreamSimulator:
    """A stream or topic at one version, on which policies are tried."""

    opened: OpenedStream
    engines: Engines
    request: SimulationRequest
    growth: Growth
    inventory: Inventory
    topic: TopicTable | None
    """The topic as read; None: it is a stream."""
    rows: GrownRows
    """Its rows, of which all estimates share what was read."""
    publishes: _StoredPublishes
    """Its messages as publishes, of which all replays share what was read."""

    def simulate(self, variant: PolicyVariant) -> SimulatedPolicy:
        """Try one policy at the instants of the request.

        Raises:
            UsageError: a setting of the variant is not a limit, or not valid.
            RefusedError: consumers release messages by this policy, and growth is assumed, or rows were asked for.
            DamagedError: a file that had to be read is damaged.
        """
        config = changed_stream(self.opened.config, variant.settings)
        changed = replace(self, opened=replace(self.opened, config=config))
        policy = config.policy()
        changed.refuse_growth(policy)
        return SimulatedPolicy(
            variant.name,
            variant.settings,
            tuple(describe(policy)),
            _cost(changed.estimate(policy, self.request.as_of_ns, self.inventory)),
            tuple(changed.passes(policy)),
        )

    def passes(self, policy: Policy) -> Iterator[SimulatedPass]:
        """The effects of passes by a policy at the instants of the request."""
        for at_ns in self.request.instants:
            stored = grown(self.inventory, self.growth, self.request.as_of_ns, at_ns)
            effect = self.estimate(policy, at_ns, stored)
            yield SimulatedPass(
                at_ns,
                pc.sum(stored.files["messages"], min_count=0).as_py(),
                pc.sum(stored.files["bytes"], min_count=0).as_py(),
                effect.removed_messages,
                effect.removed_bytes,
                effect.by_rule,
                self.alone(policy, at_ns, stored),
            )

    def alone(self, policy: Policy, at_ns: int, stored: Inventory) -> dict[str, Bounds]:
        """Rule → the messages that a pass at an instant would remove by this one of a policy's rules alone.

        Empty for a replay, in which limits act on each other at each message.
        """
        if policy.mode == "replay":
            return {}
        return {
            rule: self.estimate(with_one_rule(policy, rule), at_ns, stored).removed_messages
            for rule in acting_rules(policy)
        }

    def estimate(self, policy: Policy, at_ns: int, stored: Inventory) -> Estimate:
        """Bound a pass over the stream, or its growth, at an instant."""
        if self.topic is not None and policy.topic is not None:
            open_base = stored.counters.open_base
            segments = segments_of(stored.files, open_base, policy.topic.partitions)
            topic = replace(self.topic, inventory=stored, stored_segments=segments)
            return exactly(plan_segments(self.opened, topic, policy.topic, at_ns).plan)
        if policy.mode == "replay":
            return exactly(plan_replay(self.opened, at_ns, self.engines, self.publishes.read).plan)
        context = self._context(policy, at_ns, stored)
        if self.request.is_exact:
            return exactly(plan(context, StoredRows(self.opened, self.engines)).plan)
        return bounds_of_passes(context, self.rows)

    def _context(self, policy: Policy, at_ns: int, stored: Inventory) -> PlanningContext:
        return replace(gather(self.opened, stored, at_ns), policy=policy)

    def refuse_growth(self, policy: Policy) -> None:
        """Refuse growth where subjects, or the acknowledgements of consumers, would have to be assumed, too."""
        if self.growth.per_day and policy.mode == "replay":
            raise RefusedError(
                f"{self.opened.name}: a pass that replays (mode: replay) rests on the subject and the time of each "
                "message, and those of messages to come are not known; nothing was simulated; say --growth none"
            )
        if self.growth.per_day and policy.rests_on_consumers:
            raise RefusedError(
                f"{self.opened.name}: consumers decide what this policy removes, and how they would acknowledge "
                "messages to come is not known; nothing was simulated; say --growth none"
            )


def simulate(opened: OpenedStream, engines: Engines, request: SimulationRequest) -> Simulation:
    """Try policies on a stream or topic; nothing is written.

    Raises:
        UsageError: a setting is not a limit, or not valid; the stream was never written to; or rows and growth are
            both asked for.
        RefusedError: files of another writer have no statistics yet; or consumers release messages, and growth is
            assumed.
        DamagedError: a file that had to be read is damaged.
    """
    topic, inventory = _read(opened)
    growth = growth_of(
        request.growth, lambda: observed_growth(inventory.files), mean_bytes(inventory.files)
    )
    if request.is_exact and growth.per_day:
        raise UsageError(
            f"{opened.name}: messages to come have no rows to read: leave out growth, or do without exact numbers"
        )
    rows = GrownRows(opened, engines, inventory.files)
    simulator = StreamSimulator(
        opened, engines, request, growth, inventory, topic, rows, _StoredPublishes()
    )
    policies = tuple(map(simulator.simulate, request.variants))
    return Simulation(opened.name, "messages", request.as_of_ns, growth, request.is_exact, policies)


def _read(opened: OpenedStream) -> tuple[TopicTable | None, Inventory]:
    """The topic, if it is one, and its inventory or the stream's."""
    if not opened.table.exists():
        raise UsageError(
            f"{opened.name}: it holds nothing to simulate on; write to it first, or restore it"
        )
    snapshot = opened.store.snapshot()
    refuse_undescribed(opened, snapshot)
    policy = opened.config.policy()
    if policy.topic is not None:
        topic = read_topic(opened, policy.topic, snapshot)
        return topic, topic.inventory
    return None, opened.store.inventory(snapshot)


def _cost(effect: Estimate) -> PassCost:
    return PassCost(effect.segments, effect.bytes_rewritten, effect.files_read, effect.bytes_read)
