"""Repairs of one stream or topic, and reclaim of the disk space of dead files: dry runs until `apply()`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from retention.api.dry_run import DryRun, Mended, Repair
from retention.apply.repair.clock import ClockRepair, find_wrong_clock, repair_wrong_clock
from retention.apply.repair.foreign import ForeignRepair, find_foreign_files, repair_foreign_files
from retention.apply.repair.lost_commits import (
    LostCommitRepair,
    find_lost_commits,
    repair_lost_commits,
)
from retention.apply.repair.lost_files import FileRepair, find_lost_files, repair_lost_files
from retention.apply.repair.place import PlaceRepair, find_other_place, repair_place
from retention.apply.repair.replay import ReplayRepair, find_lost_replay, repair_lost_replay
from retention.apply.repair.returned import (
    ReturnedRepair,
    find_returned_messages,
    repair_returned_messages,
)
from retention.apply.repair.sequences import (
    SequenceRepair,
    find_impossible_sequences,
    repair_impossible_sequences,
)
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.core.units import parse_as_of
from retention.views import text_repairs
from retention.views.reclaim import reclaim_text

if TYPE_CHECKING:
    from retention.apply.reclaim.report import ReclaimReport

Instant = str | int | date | None
"""RFC 3339, a date (text or `datetime.date`; its first instant, UTC), `now-1d`, integer nanoseconds since the epoch,
a datetime or pandas Timestamp with a time zone, or
None: now."""


@checked_class
class Repairs:
    """The part of a stream or topic that repairs it: each call shows its effect, and `apply()` carries it out."""

    opened: OpenedStream

    def repair_wrong_clock(self, as_of: Instant = None) -> Repair[ClockRepair]:
        """Settle passes made with a wrong clock: from now on `as_of` counts as the last applied instant.

        Raises:
            UsageError: `as_of` is not an instant, or later than the clock.
            BusyError: another run is in progress; from `apply()`.
        """
        instant = self.instant(as_of)
        return Repair(
            lambda: find_wrong_clock(self.opened, instant),
            lambda: repair_wrong_clock(self.opened, instant),
            partial(text_repairs.clock_repair_text, grace_ns=self.opened.config.grace_ns),
        ).looked()

    def repair_impossible_sequences(self) -> Repair[SequenceRepair]:
        """Remove rows with impossible sequences or sizes, and continue sequences after the remaining rows.

        Raises:
            ForeignRowsError: rows of other writers break another storage rule; nothing was changed.
            BusyError: another run is in progress; from `apply()`.
        """
        return self._repair(
            find_impossible_sequences,
            repair_impossible_sequences,
            text_repairs.sequence_repair_text,
        )

    def repair_foreign_files(self) -> Repair[ForeignRepair]:
        """Move aside files of another writer that a Parquet stream cannot adopt.

        Raises:
            RefusedError: it is a Delta stream.
            BusyError: another run or an append is in progress; from `apply()`.
        """
        return self._repair(
            find_foreign_files, repair_foreign_files, text_repairs.foreign_repair_text
        )

    def repair_lost_commits(self) -> Repair[LostCommitRepair]:
        """Repeat the commits that another program has overwritten in the log, where the table allows it.

        Raises:
            DamagedError: the token of one cannot be read.
            BusyError: another run is in progress; from `apply()`.
        """
        return self._repair(find_lost_commits, repair_lost_commits, text_repairs.lost_commits_text)

    def repair_lost_files(self, *files: str) -> Repair[FileRepair]:
        """Remove missing or damaged files, or the named ones, from the table, as a recorded run.

        Raises:
            UsageError: the table has no such file.
            RefusedError: every file is missing, or the sequences of one of them are unknown.
            BusyError: another run is in progress, or other commits keep coming first; from `apply()`.
        """
        return self._repair(
            partial(find_lost_files, named=files),
            partial(repair_lost_files, named=files),
            text_repairs.lost_files_text,
        )

    def repair_returned_messages(self) -> Repair[ReturnedRepair]:
        """Remove exactly the messages that other writers have resurrected, as a run that can be undone.

        Raises:
            RefusedError: their files were rewritten since.
            BusyError: another run is in progress; from `apply()`.
        """
        return self._repair(
            find_returned_messages, repair_returned_messages, text_repairs.returned_repair_text
        )

    def repair_place(self) -> Repair[PlaceRepair]:
        """Permit archiving from this location as well: the warehouse was moved, or a copy shares the archive.

        Raises:
            BusyError: another run is in progress; from `apply()`.
        """
        return self._repair(find_other_place, repair_place, text_repairs.place_repair_text)

    def repair_lost_replay(self) -> Repair[ReplayRepair]:
        """Let the next pass begin its replay anew, because it cannot go on: the record of the last one is lost.

        Raises:
            BusyError: another run is in progress; from `apply()`.
        """
        return self._repair(find_lost_replay, repair_lost_replay, text_repairs.lost_replay_text)

    def reclaim(self) -> DryRun[ReclaimReport, ReclaimReport]:
        """Delete files that were dead longer than their grace period; it cannot be undone.

        Raises:
            RefusedError: the storage's clock differs from this machine's.
            DamagedError: a record of a run, or an entry of the log, cannot be read.
            BusyError: another run is in progress; from `apply()`.
        """
        from retention.apply.reclaim.run import plan_reclaim, reclaim_now

        return DryRun(
            lambda: plan_reclaim(self.opened), lambda: reclaim_now(self.opened), reclaim_text
        ).looked()

    def reclaim_leftovers(self) -> DryRun[ReclaimReport, ReclaimReport]:
        """Delete leftovers of killed processes once noted for the grace period; every file is listed.

        Raises:
            RefusedError, DamagedError, BusyError: as `reclaim`.
        """
        from retention.apply.reclaim.leftovers import find_leftovers, reclaim_leftovers

        return DryRun(
            lambda: find_leftovers(self.opened),
            lambda: reclaim_leftovers(self.opened),
            reclaim_text,
        ).looked()

    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None: the clock's."""
        return self.opened.clock() if as_of is None else parse_as_of(as_of, self.opened.clock())

    def _repair(
        self,
        find: Callable[[OpenedStream], Mended],
        act: Callable[[OpenedStream], Mended],
        show: Callable[[Mended], Iterable[str]],
    ) -> Repair[Mended]:
        return Repair(lambda: find(self.opened), lambda: act(self.opened), show).looked()
