"""A table in place, as a person holds it: planned, changed and changed back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from retention.api.dry_run import DryRun
from retention.api.erasable_table import ErasableTable
from retention.api.public import Public
from retention.apply.guards import Guards
from retention.config.describe_table import limits_in_words
from retention.core.arguments import checked_class
from retention.core.display import DisplayedDict, fields_html
from retention.core.json_object import JsonObject
from retention.engines.select import Engines
from retention.errors import UsageError
from retention.history.kinds import TableUndone
from retention.history.record import RunRecord
from retention.inspect.table_run import TableRunDetails, table_run_details
from retention.plan.simulation import SIMULATED_AT, simulation_request
from retention.plots.draw import draw
from retention.plots.history import history_chart
from retention.plots.picture import Picture
from retention.plots.plan import table_plan_chart
from retention.tables.apply import apply_now, apply_plan
from retention.tables.explain import explain_key, explain_row
from retention.tables.plan import TablePlan
from retention.tables.planfile import save_table_plans
from retention.tables.planning import plan_table
from retention.tables.reclaim import TableReclaim, plan_table_reclaim, reclaim_table
from retention.tables.removed_rows import plan_statements, removed_rows
from retention.tables.report import TableReport, numbers_of
from retention.tables.simulation import simulate_table
from retention.tables.state import TableState, state_of_table
from retention.tables.undo import undo_run, undoable
from retention.tables.wanted_key import wanted_key
from retention.views.frames import RunRecords, frame_of
from retention.views.html import table_plan_html, table_report_html
from retention.views.notebook import ShownSimulation, ShownTableExplanation
from retention.views.reclaim import table_reclaim_text
from retention.views.text_table import table_plan_text, table_report_text
from retention.views.wording import lines_text

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

    from retention.api.repairs import Instant
    from retention.verify.finding import Verification


@checked_class
class Table(ErasableTable):
    """A table of another owner, whose rows the configured limits remove where they are."""

    def plan(self, as_of: Instant = None) -> BoundTablePlan:
        """Plan a pass; nothing is changed.

        Args:
            as_of: an instant as `--as-of` takes it, or nanoseconds since the epoch; None: now.

        Raises:
            RefusedError: nothing may be removed from the table.
            ConfigError: the configuration names a column that the table does not have, or of another type.
        """
        with Engines(self._engine) as engines:
            return BoundTablePlan(self, self.plan_on(engines, self.instant(as_of)))

    def verify(self) -> Verification:
        """Verify its log, vectors, the files that runs wrote, and their records; only that record is written.

        Raises:
            RefusedError: the table uses a feature that this release does not handle.
        """
        from retention.verify.tables import verify_table

        return verify_table(self.opened)

    def simulate(
        self,
        variants: Mapping[str, Mapping[str, object]] | None = None,
        at: Iterable[Instant] = SIMULATED_AT,
        growth: str = "none",
        as_of: Instant = None,
        *,
        exact: bool = False,
        **settings: object,
    ) -> ShownSimulation:
        """Simulate what policies would keep, beside the configured one; nothing is changed, and no rows are read.

        Args:
            variants: name of each policy → its limits, with the keys and values of the configuration.
            at: the instants of passes, such as `now+30d`, where `now` is `as_of`.
            growth: the rows written from `as_of` on: `none`, `history` (as in the last 30 days of its times), or a
                number a day, such as `5000/day`.
            as_of: the instant at which growth begins.
            exact: whether to read rows, for exact numbers instead of bounds; without growth.
            settings: the limits of one more policy: `simulate(max_age="7d")`.

        Raises:
            UsageError: a setting is not a limit, or not valid; or the table has no rows.
            RetentionError: its log cannot be read.
        """
        request = simulation_request(
            variants, settings, at, self.instant(as_of), growth, exact=exact
        )
        with Engines(self._engine) as engines:
            simulation = simulate_table(self.opened, self.config, request, self._picking(engines))
        return ShownSimulation(**vars(simulation))

    def apply(
        self,
        as_of: Instant = None,
        *,
        allow_future: bool = False,
        allow_rewind: bool = False,
        allow_large: bool = False,
    ) -> ShownTableReport:
        """Plan a pass and carry it out in one step; planned again if others change the table meanwhile.

        Args:
            as_of: as `plan`.
            allow_future: whether its instant may be later than the clock.
            allow_rewind: whether its instant may be earlier than the last applied one.
            allow_large: whether it may remove more than the table's `guards` permit at once.

        Raises:
            RetentionError: as `plan`, and `BoundTablePlan.apply`.
        """
        guards = Guards(allow_future, allow_rewind, allow_large)
        with Engines(self._engine) as engines:
            return ShownTableReport(**vars(self.apply_on(engines, self.instant(as_of), guards)))

    def plan_on(self, engines: Engines, as_of_ns: int) -> TablePlan:
        """Plan a pass on some engines."""
        return plan_table(self.opened, as_of_ns, self._picking(engines))

    def apply_on(self, engines: Engines, as_of_ns: int, guards: Guards) -> TableReport:
        """Plan a pass on some engines, and carry it out."""
        return apply_now(self.opened, as_of_ns, self._picking(engines), guards)

    def explain(
        self,
        key: Mapping[str, object] | None = None,
        *,
        file: str | None = None,
        row: int | None = None,
        as_of: Instant = None,
    ) -> ShownTableExplanation:
        """Explain the rows of a key, or one row: which a pass removes and by which limit, and which runs removed.

        Args:
            key: the value of each column of the configured key.
            file: the file of a row, as `rows` names it.
            row: its position in the file, from 0 on.
            as_of: as `plan`.

        Raises:
            UsageError: neither a key nor a row is named, or both; or the key has other columns or types.
            MissingMessageError: there is no such row, and no run with a record removed one.
        """
        instant = self.instant(as_of)
        by_place = file is not None and row is not None
        if (key is None) != by_place or (file is None) != (row is None):
            raise UsageError("name either a key, or a row by its file and its position in it")
        with Engines(self._engine) as engines:
            pick = self._picking(engines)
            if file is not None and row is not None:
                explanation = explain_row(self.opened, file, row, instant, pick)
            else:
                wanted = wanted_key(self.name, self.opened.policy.columns, key or {})
                explanation = explain_key(self.opened, wanted, instant, pick)
        return ShownTableExplanation(**vars(explanation))

    def undo(self, run: str) -> TableUndone:
        """Bring back exactly the rows that a pass removed.

        Raises:
            UsageError: there is no such run.
            RefusedError: it is undone already, or a file that it needs is gone.
        """
        return undo_run(self.opened, run)

    def run(self, run: str) -> TableRunDetails:
        """One run in detail: the files that it changed, its operator, its evidence, and whether it can be undone.

        Raises:
            UsageError: there is no such run, or it has no outcome yet.
        """
        return table_run_details(self.opened, run)

    def state(self, as_of: Instant = None) -> TableState:
        """The contents, and bounds of what a pass at `as_of` would remove, from the log alone."""
        return state_of_table(self.opened, self.instant(as_of))

    def reclaim(self) -> DryRun[TableReclaim, TableReclaim]:
        """Delete the files that passes removed and whose grace is over; it cannot be undone.

        Returns:
            The files that would be deleted, found on first use; `apply()` deletes them.
        """
        return DryRun(
            lambda: plan_table_reclaim(self.opened),
            lambda: reclaim_table(self.opened),
            table_reclaim_text,
        )

    def show_undo(self, run: str) -> JsonObject:
        """Show the effect of `undo`; nothing is changed.

        Raises:
            UsageError, RefusedError: as `undo`.
        """
        record = undoable(self.opened, run)
        return DisplayedDict(table=self.name, undoes=run, restored_rows=record.removed_rows)

    def removes_again(self, run: str) -> bool:
        """Whether the table still has the limits by which a run removed rows, so that the next pass removes them."""
        record = self.opened.history.done(run)
        return record is not None and record.policy == json.loads(
            json.dumps(self.opened.policy.as_json())
        )

    def runs(self) -> Iterator[RunRecord]:
        """The outcomes of runs on the table, newest first."""
        return self.opened.history.outcomes()

    def history(self) -> RunRecords:
        """The outcomes of its runs, newest first; `to_pandas()` makes a data frame of them."""
        return RunRecords(record.as_json() for record in self.runs())

    def plot_history(self) -> Picture:
        """Draw the rows and bytes after each run, and those that runs removed, by limit; undone runs are marked.

        Raises:
            UsageError: matplotlib is not installed here.
        """
        return draw(history_chart(self.name, list(self.runs()), None, "row"))

    def __repr__(self) -> str:
        return f"Table({self.name!r}: {self.opened.location})"

    def _repr_html_(self) -> str:
        about = {"table": self.name, "location": self.opened.location, "format": self.opened.format}
        return fields_html("table", about | {"policy": limits_in_words(self.config)})


@checked_class
@dataclass(frozen=True, repr=False)
class BoundTablePlan(Public):
    """A plan together with its table."""

    table: Table
    plan: TablePlan

    def apply(
        self, *, allow_future: bool = False, allow_rewind: bool = False, allow_large: bool = False
    ) -> ShownTableReport:
        """Carry out the plan, unchanged.

        Args:
            allow_future: whether its instant may be later than the clock.
            allow_rewind: whether its instant may be earlier than the last applied one.
            allow_large: whether it may remove more than the table's `guards` permit at once.

        Raises:
            StalePlanError: a file of the plan is gone, or others deleted rows from it: plan again.
            RefusedError: the plan's instant is later than the clock, or earlier than the last applied one; or it
                removes more than a guard permits.
            BusyError: another run is in progress.
        """
        guards = Guards(allow_future, allow_rewind, allow_large)
        return ShownTableReport(**vars(apply_plan(self.table.opened, self.plan, guards)))

    def rows(self) -> pa.Table:
        """The rows that the plan removes: file, row, limit, then time, key and order.

        Raises:
            StalePlanError: another table is there.
            DamagedError, StorageError: a file cannot be read.
        """
        import pyarrow as pa

        return pa.concat_tables(removed_rows(self.table.opened, self.plan))

    def sql(self) -> list[str]:
        """The statements of Spark SQL that remove what the plan removes; run in that order.

        Of rows that neither time nor order tells apart, those at a count all stay.

        Raises:
            UsageError: the table is a directory of Parquet files, which SQL does not change.
            StalePlanError: another table is there.
        """
        return plan_statements(self.table.opened, self.plan)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file for `retention apply`.

        Raises:
            UsageError: the file exists and is not a saved plan of tables.
        """
        save_table_plans(str(path), [self.plan])

    def plot(self) -> Picture:
        """Draw the rows that are kept, and those that each limit removes.

        Raises:
            UsageError: matplotlib is not installed here.
        """
        return draw(table_plan_chart(self.plan))

    def to_pandas(self) -> pd.DataFrame:
        """The files that the plan changes, one row each: the rows removed from each, and by which limit."""
        return frame_of(file_rows(self.plan))

    def as_json(self) -> JsonObject:
        """The numbers of the plan as JSON values."""
        return numbers_of(self.plan)

    def __repr__(self) -> str:
        return lines_text(table_plan_text(self.plan))

    def _repr_html_(self) -> str:
        return table_plan_html(self.plan)


class ShownTableReport(TableReport):
    """A report that displays itself."""

    def __repr__(self) -> str:
        return lines_text(table_report_text(self))

    def _repr_html_(self) -> str:
        return table_report_html(self)


def file_rows(plan: TablePlan) -> Iterator[JsonObject]:
    """The files that a plan changes, each with the rows that it removes."""
    for removals in plan.removals:
        yield {
            "path": unquote(removals.add["path"]),
            "action": "drop" if removals.is_whole else "cut",
            "bytes": removals.add["size"],
            "rows": removals.live,
            "removed_rows": removals.removed,
            "by_rule": dict(removals.by_limit),
        }


def unknown_table_error(name: str, names: list[str]) -> UsageError:
    """The error of a table that the configuration does not list."""
    listed = ", ".join(names) or "none"
    return UsageError(f"{name}: the configuration lists no table of that name; it lists {listed}")
