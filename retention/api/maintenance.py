"""Maintenance of a warehouse: compaction of its streams, and reclaim of the disk space that dead files take."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from retention.api.selection import Selection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.outcomes import Outcome, Watch, act_sequentially
from retention.engines.select import EngineName, Engines

if TYPE_CHECKING:
    from retention.apply.compact import CompactionLimits
    from retention.apply.reclaim.report import ReclaimReport
    from retention.history.compaction_report import CompactionReport
    from retention.plan.compaction import CompactionPlan


@checked_class
class Maintenance(Selection):
    """The part of a warehouse that keeps its files good and few."""

    clock: Callable[[], int]
    engine: EngineName | None

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that something was written to."""

    def plan_compaction(
        self, names: Iterable[str] = (), max_bytes: int | None = None, watch: Watch | None = None
    ) -> list[Outcome[CompactionPlan]]:
        """Plan the compaction of streams (those with `compact` in their configuration, if none is named).

        Args:
            names: the streams; one without `compact` is planned by the defaults.
            max_bytes: the most bytes to rewrite in each; None: no bound.
            watch: gets every outcome as soon as it is there.
        """
        from retention.apply.compact import show_compaction

        def act(name: str) -> CompactionPlan:
            return show_compaction(self._known(name), max_bytes)

        return act_sequentially(self._merging(names), act, self.clock, watch)

    def compact(
        self,
        names: Iterable[str] = (),
        limits: CompactionLimits | None = None,
        watch: Watch | None = None,
    ) -> list[Outcome[CompactionReport]]:
        """Compact streams (those with `compact` in their configuration, if none is named); no message changes.

        Args:
            names: the streams; one without `compact` is compacted by the defaults.
            limits: bounds of the work, for all streams together.
            watch: gets every outcome as soon as it is there.
        """
        from retention.apply.compact import CompactionLimits, compact_now

        rest = limits or CompactionLimits()
        with Engines(self.engine) as engines:

            def act(name: str) -> CompactionReport:
                nonlocal rest
                report = compact_now(self._known(name), engines, rest)
                rest = rest.without(report)
                return report

            return act_sequentially(self._merging(names), act, self.clock, watch)

    def find_reclaimable(
        self, names: Iterable[str] = (), watch: Watch | None = None
    ) -> list[Outcome[ReclaimReport]]:
        """Find what `reclaim` would delete of streams (all, if none is named); nothing is changed."""
        from retention.apply.reclaim.run import plan_reclaim

        def act(name: str) -> ReclaimReport:
            return plan_reclaim(self._known(name))

        return act_sequentially(self.chosen(names), act, self.clock, watch)

    def reclaim(
        self, names: Iterable[str] = (), watch: Watch | None = None
    ) -> list[Outcome[ReclaimReport]]:
        """Delete what is dead for longer than its grace of streams (all, if none is named); it cannot be undone."""
        from retention.apply.reclaim.run import reclaim_now

        def act(name: str) -> ReclaimReport:
            return reclaim_now(self._known(name))

        return act_sequentially(self.chosen(names), act, self.clock, watch)

    def find_leftovers(
        self, names: Iterable[str] = (), watch: Watch | None = None
    ) -> list[Outcome[ReclaimReport]]:
        """Find what `reclaim_leftovers` would delete of streams (all, if none is named); nothing is changed."""
        from retention.apply.reclaim.leftovers import find_leftovers

        def act(name: str) -> ReclaimReport:
            return find_leftovers(self._known(name))

        return act_sequentially(self.chosen(names), act, self.clock, watch)

    def reclaim_leftovers(
        self, names: Iterable[str] = (), watch: Watch | None = None
    ) -> list[Outcome[ReclaimReport]]:
        """Delete what killed processes left in streams (all, if none is named), once it was noted for the grace."""
        from retention.apply.reclaim.leftovers import reclaim_leftovers

        def act(name: str) -> ReclaimReport:
            return reclaim_leftovers(self._known(name))

        return act_sequentially(self.chosen(names), act, self.clock, watch)

    def _merging(self, names: Iterable[str]) -> list[str]:
        return self.chosen(names, among=self.compacted())
