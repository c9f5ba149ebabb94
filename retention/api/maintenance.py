"""Maintenance of a warehouse, as dry runs until `apply()`: compaction of its streams, and reclaim of disk space."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.outcomes import Outcome, Watch, act_sequentially
from retention.engines.select import EngineName, Engines
from retention.views.outcomes import Outcomes

if TYPE_CHECKING:
    from retention.api.dry_run import DryRun
    from retention.apply.compact import CompactionLimits
    from retention.apply.reclaim.report import ReclaimReport
    from retention.history.compaction_report import CompactionReport
    from retention.plan.compaction import CompactionPlan


@checked_class
class Maintenance(StreamSelection):
    """The part of a warehouse that merges small files and deletes dead ones."""

    clock: Callable[[], int]
    engine: EngineName | None

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    def compact(
        self,
        names: Iterable[str] | None = None,
        limits: CompactionLimits | None = None,
        watch: Watch | None = None,
    ) -> DryRun[list[Outcome[CompactionPlan]], list[Outcome[CompactionReport]]]:
        """Compact streams (those with `compact` in their configuration, if `names` is None); no message changes.

        Args:
            names: the streams; one without `compact` is compacted by the defaults.
            limits: limits of the work, for all streams together; the plan shown is limited per stream.
            watch: receives every outcome as soon as it is available.

        Returns:
            The plan of each stream, made on first use; `apply()` carries them out.
        """
        from retention.api.dry_run import DryRun, lines_of_outcomes
        from retention.apply.compact import CompactionLimits, show_compaction
        from retention.views.text_compaction import compaction_plan_text

        within = limits or CompactionLimits()
        chosen = self._named(names, among=self.compacted())

        def find(name: str) -> CompactionPlan:
            return show_compaction(self._known(name), within.max_bytes)

        return DryRun(
            lambda: act_sequentially(chosen, find, self.clock, watch),
            lambda: self._compact(chosen, within, watch),
            lines_of_outcomes(compaction_plan_text),
        )

    def reclaim(
        self, names: Iterable[str] | None = None, watch: Watch | None = None
    ) -> DryRun[list[Outcome[ReclaimReport]], list[Outcome[ReclaimReport]]]:
        """Delete files of streams (all, if `names` is None) dead for longer than their grace; it cannot be undone.

        Returns:
            The files that would be deleted from each stream, found on first use; `apply()` deletes them.
        """
        from retention.apply.reclaim.run import plan_reclaim, reclaim_now

        return self._reclaim(names, plan_reclaim, reclaim_now, watch)

    def reclaim_leftovers(
        self, names: Iterable[str] | None = None, watch: Watch | None = None
    ) -> DryRun[list[Outcome[ReclaimReport]], list[Outcome[ReclaimReport]]]:
        """Delete leftovers of killed processes in streams (all, if `names` is None) once noted for the grace period.

        Returns:
            As `reclaim`.
        """
        from retention.apply.reclaim.leftovers import find_leftovers, reclaim_leftovers

        return self._reclaim(names, find_leftovers, reclaim_leftovers, watch)

    def _compact(
        self, names: Iterable[str], limits: CompactionLimits, watch: Watch | None
    ) -> list[Outcome[CompactionReport]]:
        from retention.apply.compact import compact_now

        rest = limits
        with Engines(self.engine) as engines:

            def act(name: str) -> CompactionReport:
                nonlocal rest
                report = compact_now(self._known(name), engines, rest)
                rest = rest.without(report)
                return report

            return Outcomes(act_sequentially(names, act, self.clock, watch))

    def _reclaim(
        self,
        names: Iterable[str] | None,
        find: Callable[[OpenedStream], ReclaimReport],
        delete: Callable[[OpenedStream], ReclaimReport],
        watch: Watch | None,
    ) -> DryRun[list[Outcome[ReclaimReport]], list[Outcome[ReclaimReport]]]:
        from retention.api.dry_run import DryRun, lines_of_outcomes
        from retention.views.reclaim import reclaim_text

        chosen = self._named(names, among=self.reclaimable())

        def each(act: Callable[[OpenedStream], ReclaimReport]) -> list[Outcome[ReclaimReport]]:
            done = act_sequentially(chosen, lambda name: act(self._known(name)), self.clock, watch)
            return Outcomes(done)

        return DryRun(lambda: each(find), lambda: each(delete), lines_of_outcomes(reclaim_text))
