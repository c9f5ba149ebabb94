"""Repairs of one stream or topic, and reclaim of the disk space that its dead files take."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from retention.apply.repair.clock import ClockRepair, find_wrong_clock, repair_wrong_clock
from retention.apply.repair.foreign import ForeignRepair, find_foreign_files, repair_foreign_files
from retention.apply.repair.lost_commits import (
    LostCommitRepair,
    find_lost_commits,
    repair_lost_commits,
)
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

if TYPE_CHECKING:
    from retention.apply.reclaim.report import ReclaimReport

Instant = str | int | datetime | None
"""RFC 3339, a date, `now-1d`, integer nanoseconds since the epoch, a datetime or pandas Timestamp with a time zone, or
None: now."""


@checked_class
class Repairs:
    """The part of a stream or topic that mends it."""

    opened: OpenedStream

    def find_wrong_clock(self, as_of: Instant = None) -> ClockRepair:
        """Find what passes with a wrong clock left, and what `repair_wrong_clock` would make of it; nothing is changed.

        Raises:
            UsageError: `as_of` is no instant, or later than the clock.
        """
        return find_wrong_clock(self.opened, self.instant(as_of))

    def repair_wrong_clock(self, as_of: Instant = None) -> ClockRepair:
        """Settle passes that were made with a wrong clock: `as_of` counts as the last applied instant from now on.

        Raises:
            UsageError: `as_of` is no instant, or later than the clock.
            BusyError: another run is at work.
        """
        return repair_wrong_clock(self.opened, self.instant(as_of))

    def find_impossible_sequences(self) -> SequenceRepair:
        """Find rows with sequences or sizes that no message can have, and counters of such; nothing is changed.

        Raises:
            ForeignRowsError: rows of other writers break another storage rule.
        """
        return find_impossible_sequences(self.opened)

    def repair_impossible_sequences(self) -> SequenceRepair:
        """Take rows with sequences or sizes that no message can have out, and count sequences on from the others.

        Raises:
            BusyError: another run is at work.
            ForeignRowsError: rows of other writers break another storage rule; nothing was changed.
        """
        return repair_impossible_sequences(self.opened)

    def find_foreign_files(self) -> ForeignRepair:
        """Find files that another writer put into a Parquet stream, and that it cannot take in; nothing is changed.

        Raises:
            RefusedError: it is a Delta stream.
        """
        return find_foreign_files(self.opened)

    def repair_foreign_files(self) -> ForeignRepair:
        """Move files that another writer put into a Parquet stream, and that it cannot take in, aside.

        Raises:
            RefusedError: it is a Delta stream.
            BusyError: another run is at work, or somebody appends.
        """
        return repair_foreign_files(self.opened)

    def find_lost_commits(self) -> LostCommitRepair:
        """Find commits of ours whose entry in the log another program has overwritten; nothing is changed.

        Raises:
            DamagedError: the token of one cannot be read.
        """
        return find_lost_commits(self.opened)

    def repair_lost_commits(self) -> LostCommitRepair:
        """Commit again what another program has overwritten in the log, as far as the table allows.

        Raises:
            BusyError: another run is at work.
            DamagedError: the token of one cannot be read.
        """
        return repair_lost_commits(self.opened)

    def find_returned_messages(self) -> ReturnedRepair:
        """Find the messages that other writers have brought back by overlooking a removal; nothing is changed.

        Raises:
            RefusedError: what they made was rewritten since.
        """
        return find_returned_messages(self.opened)

    def repair_returned_messages(self) -> ReturnedRepair:
        """Remove exactly what other writers have brought back, as a run that can be undone.

        Raises:
            RefusedError: what they made was rewritten since.
            BusyError: another run is at work.
        """
        return repair_returned_messages(self.opened)

    def find_reclaimable(self) -> ReclaimReport:
        """Find what `reclaim` would delete by now, by reason; nothing is changed.

        Raises:
            RefusedError, DamagedError: as `reclaim`.
        """
        from retention.apply.reclaim.run import plan_reclaim

        return plan_reclaim(self.opened)

    def reclaim(self) -> ReclaimReport:
        """Delete what is dead for longer than its grace; it cannot be undone.

        Raises:
            BusyError: another run is at work.
            RefusedError: the storage's clock differs from this machine's.
            DamagedError: a record of a run, or an entry of the log, cannot be read.
        """
        from retention.apply.reclaim.run import reclaim_now

        return reclaim_now(self.opened)

    def find_leftovers(self) -> ReclaimReport:
        """Find what killed processes have left, and `reclaim_leftovers` would delete by now; nothing is changed.

        Raises:
            RefusedError, DamagedError: as `reclaim`.
        """
        from retention.apply.reclaim.leftovers import find_leftovers

        return find_leftovers(self.opened)

    def reclaim_leftovers(self) -> ReclaimReport:
        """Delete what killed processes have left, once it was noted for the grace; every file is listed.

        Raises:
            BusyError, RefusedError, DamagedError: as `reclaim`.
        """
        from retention.apply.reclaim.leftovers import reclaim_leftovers

        return reclaim_leftovers(self.opened)

    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None is the clock's."""
        return self.opened.clock() if as_of is None else parse_as_of(as_of, self.opened.clock())
