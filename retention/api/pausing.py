"""Pauses of a warehouse: a stop of all removals, from its streams and tables or from some of them, until resumed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from retention.api.selection import StreamSelection
from retention.config.discovery import refuse_missing
from retention.context.context import OpenedStream, has_table
from retention.context.maintenance import maintaining
from retention.core.arguments import checked_class
from retention.core.spoken_commands import command
from retention.errors import BusyError, UsageError
from retention.history.initiator import initiator
from retention.stores.lease import lease
from retention.stores.pauses import Pause, PauseRecords

if TYPE_CHECKING:
    from retention.api.table import Table
    from retention.tables.opened import OpenedTable

WAIT_S = 60.0
"""The time for which a pause waits for the run in progress of each stream and table, in seconds."""


@checked_class
class Pausing(StreamSelection):
    """The part of a warehouse that stops all that removes messages and rows, and allows it again."""

    clock: Callable[[], int]

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    @abstractmethod
    def table(self, name: str) -> Table:
        """A table in place that the configuration lists."""

    def pause(self, names: Iterable[str] | None = None, *, reason: str) -> list[Pause]:
        """Stop removals: passes, requested removals, drops, roll-ups and reclaims are refused until `resume`.

        After the return no run that began before removes anything. Publishes, undos and compactions go on.

        Args:
            names: the streams and tables; None: all of the warehouse, present and future.
            reason: kept with the pause, and part of each refusal.

        Returns:
            The pauses in effect, in the order of `names`.

        Raises:
            UsageError: there is no such stream or table, or no reason.
            BusyError: the pause is in effect, and a run that began before it has not ended.
        """
        scopes = self._scopes(names)
        self._record(scopes, "pause", reason)
        chosen = [*self.streams(), *self.tables()] if names is None else [*scopes]
        busy = [name for name in chosen if name is not None and not self._is_at_rest(name)]
        if busy:
            raise BusyError(
                f"{', '.join(busy)}: removals are paused, and a run that began before has not ended and may still "
                "remove; repeat the pause to wait for it again"
            )
        pauses = (records.current() for records in scopes.values())
        return [pause for pause in pauses if pause is not None]

    def resume(self, names: Iterable[str] | None = None, *, reason: str) -> list[Pause]:
        """Allow removals again.

        Args:
            names: the streams and tables whose own pause ends; None: the pause of the whole warehouse ends, while
                streams and tables that are paused by name stay so.
            reason: kept with the resumption.

        Returns:
            The pauses that ended, in the order of `names`.

        Raises:
            UsageError: there is no such stream or table, one of them is not paused, or no reason is given.
            DamagedError: the record of a pause cannot be read; it is replaced if the warehouse or stream is paused
                again first.
        """
        scopes = self._scopes(names)
        ended = [self._paused(records) for records in scopes.values()]
        self._record(scopes, "resume", reason)
        return ended

    def _scopes(self, names: Iterable[str] | None) -> dict[str | None, PauseRecords]:
        refuse_missing(self.config)
        if names is None:
            return {None: PauseRecords(self.location)}
        tables = set(self.tables())
        return {
            name: PauseRecords(
                self.table(name).opened.home if name in tables else self._known(name).root, name
            )
            for name in dict.fromkeys(names)
        }

    def _record(
        self,
        scopes: dict[str | None, PauseRecords],
        kind: Literal["pause", "resume"],
        reason: str,
    ) -> None:
        if not reason.strip():
            raise UsageError(f"a {kind} needs a reason, which is kept; nothing was changed")
        for records in scopes.values():
            records.add(kind, reason, initiator(), self.clock())

    def _paused(self, records: PauseRecords) -> Pause:
        pause = records.current()
        if pause is not None:
            return pause
        name = records.name
        if name is not None and PauseRecords(self.location).current() is not None:
            raise UsageError(
                f"{name}: removals of the whole warehouse are paused, not those of this one; nothing was changed; "
                f"{command('resume', options='--reason …')} ends that pause"
            )
        raise UsageError(f"{name or self.location}: removals are not paused; nothing was changed")

    @staticmethod
    def _await_table(opened: OpenedTable) -> None:
        with lease(opened.home, "maintenance", opened.clock, wait_s=max(opened.wait_s, WAIT_S)):
            pass

    def _is_at_rest(self, name: str) -> bool:
        """Wait until no run on a stream or table is in progress; whether that came true."""
        try:
            if name in self.tables():
                self._await_table(self.table(name).opened)
            elif has_table(opened := self._known(name)):
                with maintaining(opened, at_least_s=WAIT_S):
                    pass
        except BusyError:
            return False
        return True
