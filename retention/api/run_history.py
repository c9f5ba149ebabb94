"""The run history of a warehouse: its runs listed, one of them in detail, and undone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from retention.api.selection import Selection
from retention.apply.undo import show_undo, undo_run
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.engines.select import EngineName, Engines
from retention.errors import UsageError
from retention.history.across_streams import runs_of
from retention.history.record import RunRecord
from retention.history.runs import history_of

if TYPE_CHECKING:
    from retention.inspect.run_details import RunDetails
    from retention.views.frames import RunRecords


@checked_class
class RunHistory(Selection):
    """The part of a warehouse that tells of its runs, and undoes them."""

    clock: Callable[[], int]
    engine: EngineName | None

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that something was written to."""

    def history(self, names: Iterable[str] | None = None) -> RunRecords:
        """The outcomes of runs over streams (all, if `names` is None), newest first; `to_pandas()` makes a frame.

        Raises:
            UsageError: there is no such stream.
        """
        from retention.views.frames import RunRecords

        return RunRecords(record.as_json() for record in self.runs(names))

    def runs(self, names: Iterable[str] | None = None) -> list[RunRecord]:
        """The outcomes of runs over streams (all, if `names` is None), newest first, as typed records.

        Raises:
            UsageError: there is no such stream.
        """
        return runs_of(
            self.location,
            [self._known(name).name for name in self._named(names, among=self.streams())],
        )

    def undo(self, run: str) -> dict[str, Any]:
        """Bring back what a run removed; the record of the run that did so, and `removed_again` beside it.

        `removed_again` has `rules` and `sentence`: what the next pass takes again, and what keeps it; None: nothing
        that is certain.

        Raises:
            UsageError: there is no such run.
            RefusedError: some of the messages are there again.
            VerificationError: a removed file is gone: its grace is over.
        """
        from retention.inspect.run_details import removed_again_of

        opened = self._of_run(run)
        with Engines(self.engine) as engines:
            done = undo_run(opened, run, engines).as_json()
            again = removed_again_of(opened, run)
        del done["status"]
        return done | {"removed_again": again}

    def show_undo(self, run: str) -> dict[str, Any]:
        """Show what `undo` would do, as `apply.undo.show_undo` and `undo` have it; nothing is changed.

        Raises:
            UsageError, RefusedError, VerificationError: as `undo`.
        """
        from retention.inspect.run_details import removed_again_of

        opened = self._of_run(run)
        return show_undo(opened, run) | {"removed_again": removed_again_of(opened, run)}

    def run(self, run: str) -> RunDetails:
        """One run in detail: what it took by segment and rule, who ran it, and whether it can come back.

        Raises:
            UsageError: there is no such run, or it has no outcome yet.
        """
        from retention.inspect.run_details import run_details

        return run_details(self._of_run(run), run, self.clock())

    def _of_run(self, run: str) -> OpenedStream:
        """The stream whose run it is."""
        for name in self.chosen(among=self.streams()):
            history = history_of(self.location, name)
            if history.begun(run) is not None or history.done(run) is not None:
                return self._known(name)
        raise UsageError(
            f"{run}: no stream in {self.location} has such a run; `retention history` lists the runs"
        )
