"""Reports of a warehouse to hand on: one page, or Markdown, about streams and tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.outcomes import Outcome, act_concurrently
from retention.engines.select import EngineName, Engines
from retention.storage import files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retention.api.repairs import Instant
    from retention.api.table import Table
    from retention.inspect.log_report import AnyState, LogReport, Overview
    from retention.plan.simulation import Simulation
    from retention.plots.charts import Chart
    from retention.views.notebook_report import ShownWarehouseReport
    from retention.views.report_page import Section

MOST_SECTIONS = 20
"""The streams and tables that a report has in detail; the most urgent ones."""

_DUE_AT = ("now", *(f"now+{days}d" for days in (1, 3, 7, 14, 21, 30)))
"""The instants of the picture of dues."""
_SIMULATED_SUBJECTS = 200_000
"""A stream with more subjects has no picture of dues: their counts are read once for each instant."""


@checked_class
class Reports(StreamSelection):
    """The part of a warehouse that reports its health."""

    clock: Callable[[], int]
    engine: EngineName | None
    instant: Callable[[Instant], int]

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    @abstractmethod
    def table(self, name: str) -> Table:
        """A table in place that the configuration lists."""

    def report(
        self, names: Iterable[str] | None = None, as_of: Instant = None
    ) -> ShownWarehouseReport:
        """Report the health of streams and tables: contents, lag, last passes, consumers, dues, commands to undo.

        Nothing is changed, and no rows are read. A notebook displays it; `save_html` and `save_markdown` write it.

        Args:
            names: the streams and tables; None: all.
            as_of: the instant of lags and dues; None: now.

        Raises:
            UsageError: there is no warehouse at this location.
        """
        from retention.plots.warehouse import Measured, warehouse_chart
        from retention.views.notebook_report import ShownWarehouseReport

        instant = self.instant(as_of)
        outcomes = self._overviews(names, instant)
        known = [_overview(outcome) for outcome in outcomes]
        known.sort(key=lambda each: each.urgency)
        measured = [
            Measured(each.name, each.bytes, each.behind_ns, each.kind)
            for each in known
            if not each.error
        ]
        chart = warehouse_chart(measured, len(known) - len(measured), instant)
        failed = {outcome.stream for outcome in outcomes if outcome.error is not None}
        return ShownWarehouseReport(
            self.location,
            instant,
            known,
            [
                self._section(each, instant)
                for each in known[:MOST_SECTIONS]
                if each.name not in failed
            ],
            None if len(known) == 1 else chart,
            outcomes=outcomes,
        )

    def _overviews(self, names: Iterable[str] | None, as_of_ns: int) -> list[Outcome[Overview]]:
        from retention.inspect.log_report import overview_of, overview_of_table

        given = None if names is None else list(names)
        streams, tables = ([], []) if given == [] else self.chosen_with_tables(given or ())
        listed = set(tables)

        def ask(name: str) -> Overview:
            if name in listed:
                return overview_of_table(self.table(name).opened, as_of_ns)
            return overview_of(self._known(name), as_of_ns)

        at_a_time = files.streams_at_once(self.location)
        return act_concurrently([*streams, *tables], ask, self.clock, at_a_time)

    def _section(self, overview: Overview, as_of_ns: int) -> Section:
        from retention.inspect.log_report import report_of, report_of_table
        from retention.views.report_page import Section

        if overview.kind == "table":
            table = self.table(overview.name)
            report = report_of_table(table.opened, table.config, overview, as_of_ns)
        else:
            report = report_of(self._known(overview.name), overview, as_of_ns)
        return Section(report, [*self._charts(report, as_of_ns)])

    def _charts(self, report: LogReport, as_of_ns: int) -> Iterator[Chart]:
        """The pictures of one stream or table: its history, what falls due, and its consumers."""
        from retention.api.pictures import stored_now
        from retention.plots.consumers import consumers_chart
        from retention.plots.history import history_chart
        from retention.plots.simulation import due_chart

        name, noun = report.overview.name, report.overview.noun
        is_log = report.overview.kind != "table"
        stored = stored_now(self._known(name)) if is_log and report.state is not None else None
        yield history_chart(name, [run.record for run in report.runs], stored, noun)
        if report.overview.amount and _is_simulated(report.state):
            yield due_chart(self._dues(name, as_of_ns, is_log=is_log))
        if report.consumers:
            held = None if report.plan is None else report.plan.held
            yield consumers_chart(name, report.consumers, held)

    def _dues(self, name: str, as_of_ns: int, *, is_log: bool) -> Simulation:
        """The passes of the next 30 days, if nothing is stored meanwhile."""
        from retention.inspect.simulation import simulate
        from retention.plan.simulation import simulation_request

        if not is_log:
            return self.table(name).simulate(at=_DUE_AT, as_of=as_of_ns)
        request = simulation_request(None, {}, _DUE_AT, as_of_ns, "none", exact=False)
        with Engines("local") as engines:
            return simulate(self._known(name), engines, request)


def _is_simulated(state: AnyState | None) -> bool:
    subjects = getattr(state, "num_subjects", 0)
    return state is not None and subjects <= _SIMULATED_SUBJECTS


def _overview(outcome: Outcome[Overview]) -> Overview:
    from retention.inspect.log_report import Overview

    if outcome.value is not None:
        return outcome.value
    return Overview(outcome.stream, "stream", behind_ns=None, error=outcome.sentence)
