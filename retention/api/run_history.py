"""The run history of a warehouse: its runs listed, shown in detail, and undone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.display import DisplayedDict, DisplayedList
from retention.engines.select import EngineName, Engines
from retention.errors import UsageError
from retention.history.record import RunRecord
from retention.history.run_fields import RunEntry
from retention.history.runs import history_of

if TYPE_CHECKING:
    from retention.api.table import Table
    from retention.inspect.run_details import RunDetails
    from retention.views.frames import RunRecords


@checked_class
class RunHistory(StreamSelection):
    """The part of a warehouse that shows its runs, and undoes them."""

    clock: Callable[[], int]
    engine: EngineName | None

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    @abstractmethod
    def table(self, name: str) -> Table:
        """A table in place that the configuration lists."""

    def history(self, names: Iterable[str] | None = None) -> RunRecords:
        """The outcomes of runs, newest first; `to_pandas()` makes a data frame of them.

        Args:
            names: the streams and tables; None: all.

        Raises:
            UsageError: there is no such stream.
        """
        from retention.views.frames import RunRecords

        return RunRecords(record.as_json() for record in self.runs(names))

    def runs(self, names: Iterable[str] | None = None) -> list[RunRecord]:
        """The outcomes of runs over streams and tables (all, if `names` is None), newest first, as typed records.

        Raises:
            UsageError: there is no such stream.
        """
        from retention.history.across_streams import runs_of

        given = None if names is None else list(names)
        if given == []:
            return []
        streams, tables = self.chosen_with_tables(given or (), among=self.streams())
        known = [self._known(name).name for name in streams]
        return DisplayedList(runs_of(self.location, [*known, *tables]))

    def undo(self, run: str, *, hold: str | None = None) -> dict[str, Any]:
        """Restore what a run removed; return the record of the undoing run, with `removed_again` added.

        `removed_again` has `rules` and `sentence`: the rules by which the next pass removes the messages again, and how
        to prevent it; None: nothing is certain to be removed.

        Args:
            run: the run.
            hold: the reason of a legal hold of the run's messages, which is in effect before they are back.

        Raises:
            UsageError: there is no such run, or the reason is empty.
            RefusedError: some of the messages are in the table again.
            VerificationError: a removed file is deleted: its grace period is over.
        """
        from retention.apply.undo import undo_run
        from retention.inspect.run_details import removed_again_of

        if hold is not None and not hold.strip():
            raise UsageError(
                f"{run}: a legal hold needs text as its reason, which is kept; nothing was changed"
            )
        opened = self._of_run(run)
        with Engines(self.engine) as engines:
            done = undo_run(opened, run, engines, hold).as_json()
            again = removed_again_of(opened, run)
        del done["status"]
        return RunEntry(done | {"removed_again": again})

    def show_undo(self, run: str) -> dict[str, Any]:
        """Show the effect of `undo`, with the fields of `apply.undo.show_undo` and `undo`; nothing is changed.

        Raises:
            UsageError, RefusedError, VerificationError: as `undo`.
        """
        from retention.apply.undo import show_undo
        from retention.inspect.run_details import removed_again_of

        opened = self._of_run(run)
        again = {"removed_again": removed_again_of(opened, run)}
        return DisplayedDict(show_undo(opened, run) | again)

    def run(self, run: str) -> RunDetails:
        """One run in detail: its removed messages by segment and rule, its operator, and whether it can be undone.

        Raises:
            UsageError: there is no such run, or it has no outcome yet.
        """
        from retention.inspect.run_details import run_details

        return run_details(self._of_run(run), run, self.clock())

    def _of_run(self, run: str) -> OpenedStream:
        """The stream of a run."""
        for name in self.chosen(among=self.streams()):
            history = history_of(self.location, name)
            if history.begun(run) is not None or history.done(run) is not None:
                return self._known(name)
        for name in self.tables():
            if self.table(name).opened.history.begun(run) is not None:
                raise UsageError(
                    f"{run}: this run is of the table in place {name}; use the methods of `warehouse.table({name!r})`"
                )
        kinds = "stream or table" if self.tables() else "stream"
        raise UsageError(
            f"{run}: no {kinds} in {self.location} has such a run; `retention history` lists the runs"
        )
