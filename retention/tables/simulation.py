"""Simulations of a table in place: passes by changed limits, at instants to come, from its log or from rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from retention.config.changed import changed_table
from retention.config.describe_table import limits_in_words
from retention.config.table import TableConfig
from retention.core.bounds import Bounds
from retention.core.table_policy import TablePolicy, with_one_limit
from retention.engine_port import Engine
from retention.errors import UsageError
from retention.plan.growth import Growth, growth_of
from retention.plan.simulation import (
    PassCost,
    PolicyVariant,
    SimulatedPass,
    SimulatedPolicy,
    Simulation,
    SimulationRequest,
)
from retention.tables.access import access_of
from retention.tables.bounded_files import BoundedFiles, TableEstimate, set_limits
from retention.tables.opened import OpenedTable
from retention.tables.planning import plan_snapshot


@dataclass(frozen=True)
class TableSimulator:
    """A table at one version, on which limits are tried."""

    config: TableConfig
    request: SimulationRequest
    files: BoundedFiles
    growth: Growth
    choose_engine: Callable[[int], Engine]

    def simulate(self, variant: PolicyVariant) -> SimulatedPolicy:
        """Try one policy at the instants of the request.

        Raises:
            UsageError: a setting of the variant is not a limit, or not valid.
            RetentionError: a file that had to be read cannot be read.
        """
        config = changed_table(self.config, variant.settings)
        files = self.files.with_policy(config.policy)
        now = files.estimate(self.request.as_of_ns)
        return SimulatedPolicy(
            variant.name,
            variant.settings,
            limits_in_words(config),
            _cost(now),
            tuple(self.passes(files, config.policy)),
        )

    def passes(self, files: BoundedFiles, policy: TablePolicy) -> Iterator[SimulatedPass]:
        """The effects of passes over files at the instants of the request."""
        for at_ns in self.request.instants:
            if self.request.is_exact:
                yield self.read(files, policy, at_ns)
            else:
                yield bounded_pass(
                    files.grown(self.growth, self.request.as_of_ns, at_ns), policy, at_ns
                )

    def read(self, files: BoundedFiles, policy: TablePolicy, at_ns: int) -> SimulatedPass:
        """The effect of one pass at an instant, from rows."""
        effect, by_rule = files.estimate(at_ns), self.exactly(policy, at_ns)
        alone = {
            limit: _sum(self.exactly(with_one_limit(policy, limit), at_ns).values())
            for limit in set_limits(policy)
        }
        removed = _sum(by_rule.values())
        return SimulatedPass(
            at_ns, effect.rows, effect.bytes, removed, effect.removed_bytes, by_rule, alone
        )

    def exactly(self, policy: TablePolicy, at_ns: int) -> dict[str, Bounds]:
        """The rows that a pass would remove by each limit, from rows."""
        table = replace(self.files.table, policy=policy)
        plan = plan_snapshot(table, self.files.snapshot, at_ns, self.choose_engine)
        return {limit: Bounds(number, number) for limit, number in plan.by_limit.items()}


def simulate_table(
    table: OpenedTable,
    config: TableConfig,
    request: SimulationRequest,
    choose_engine: Callable[[int], Engine],
) -> Simulation:
    """Try policies on a table; nothing is written.

    Raises:
        UsageError: there is no table, or it has no rows; a setting is not a limit, or not valid; or rows and growth
            are both asked for.
        RetentionError: its log, or a file that had to be read, cannot be read.
    """
    files = BoundedFiles.of(table, access_of(table).read(table))
    if files is None:
        raise UsageError(f"{table.name}: the table has no rows to simulate on; write to it first")
    growth = growth_of(request.growth, files.observed_growth, files.mean_bytes)
    if request.is_exact and growth.per_day:
        raise UsageError(
            f"{table.name}: rows to come cannot be read: leave out growth, or do without exact numbers"
        )
    simulator = TableSimulator(config, request, files, growth, choose_engine)
    policies = tuple(map(simulator.simulate, request.variants))
    return Simulation(table.name, "rows", request.as_of_ns, growth, request.is_exact, policies)


def bounded_pass(files: BoundedFiles, policy: TablePolicy, at_ns: int) -> SimulatedPass:
    """The bounds of passes until an instant.

    An earlier pass may remove a row by its rank beside rows that have expired by now, so that passes together may
    remove what the last one alone would keep: at most what its limits remove one by one.
    """
    effect = files.estimate(at_ns)
    alone = {
        limit: files.with_policy(with_one_limit(policy, limit)).estimate(at_ns)
        for limit in set_limits(policy)
    }
    rows = _sum(each.removed_rows for each in alone.values()).upper
    size = _sum(each.removed_bytes for each in alone.values()).upper
    return SimulatedPass(
        at_ns,
        effect.rows,
        effect.bytes,
        Bounds(effect.removed_rows.lower, min(max(effect.removed_rows.upper, rows), effect.rows)),
        Bounds(
            effect.removed_bytes.lower, min(max(effect.removed_bytes.upper, size), effect.bytes)
        ),
        effect.by_rule,
        {limit: each.removed_rows for limit, each in alone.items()},
    )


def _sum(bounds: Iterable[Bounds]) -> Bounds:
    pairs = [(each.lower, each.upper) for each in bounds]
    return Bounds(*(sum(ends) for ends in zip(*pairs, strict=True))) if pairs else Bounds(0, 0)


def _cost(effect: TableEstimate) -> PassCost:
    opened = Bounds(effect.files_read, effect.files_read)
    kept = effect.files - effect.files_removed.upper
    pieces = {
        "dropped": effect.files_removed,
        "rewritten": Bounds(0, effect.files_read),
        "kept": Bounds(max(kept - effect.files_read, 0), effect.files - effect.files_removed.lower),
    }
    return PassCost(pieces, effect.bytes_rewritten, opened, Bounds(0, effect.bytes_rewritten.upper))
