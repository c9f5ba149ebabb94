"""Requirements of a commit: what has to hold of a table, or the commit is refused.

A requirement is any frozen type with `check`; stores check every one of a swap, and know none by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from retention.core.inventory import EPOCH, Counters
from retention.errors import StalePlanError

PLAN_AGAIN = "nothing was changed; plan again"


@dataclass(frozen=True)
class TableState:
    """The version of a table that a commit is held against."""

    stream: str
    """The stream's name, for messages."""
    counters: Counters
    """The effective counters of the table."""
    stays: pa.Table
    """Live files that the commit does not remove: `LOGGED_FILES` with min_seq and max_seq (null where not known)."""
    sets: Mapping[str, int]
    """Name → value of every counter that the commit sets (`counter_names`)."""

    @property
    def in_epoch(self) -> Counters:
        """The counters of the epoch that the commit leaves the table in: none where that is another one."""
        return Counters() if EPOCH in self.sets else self.counters


class TableRequirement(Protocol):
    """A condition of a commit, checked again on every version that the commit is tried on."""

    def check(self, state: TableState) -> None:
        """Hold the requirement against a table.

        Raises:
            StalePlanError: it does not hold any more.
        """
        ...


@dataclass(frozen=True)
class AssertEpoch:
    """The counters count in this epoch; 0 is the first."""

    number: int

    def check(self, state: TableState) -> None:
        """Refuse a table that was purged since.

        Raises:
            StalePlanError: it is in another epoch.
        """
        if state.counters.epoch != self.number:
            raise StalePlanError(f"stream {state.stream}: it was purged meanwhile; {PLAN_AGAIN}")


@dataclass(frozen=True)
class AssertConsumerEdits:
    """Consumers were created, edited and deleted this many times, and not once more."""

    count: int

    def check(self, state: TableState) -> None:
        """Refuse a table of which a consumer was edited since.

        Raises:
            StalePlanError: one was.
        """
        if state.counters.consumers != self.count:
            raise StalePlanError(
                f"stream {state.stream}: a consumer was created, edited or deleted meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertRowTombstones:
    """The record of row tombstones in force has this number; 0: there is none."""

    number: int

    def check(self, state: TableState) -> None:
        """Refuse a table that another record was put in force for.

        Raises:
            StalePlanError: one was.
        """
        if state.counters.released != self.number:
            raise StalePlanError(
                f"stream {state.stream}: another run recorded meanwhile what is released; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertClaims:
    """Dead files were claimed this many times, and not once more: none that the commit brings back is being deleted."""

    count: int

    def check(self, state: TableState) -> None:
        """Refuse a table of which dead files were claimed since.

        Raises:
            StalePlanError: some were.
        """
        if state.counters.claims != self.count:
            raise StalePlanError(
                f"stream {state.stream}: dead files were claimed for deletion meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertStagingClaims:
    """Staged files were claimed this many times when those of the commit were begun, and not once more."""

    count: int

    def check(self, state: TableState) -> None:
        """Refuse to commit files that were staged before staged files were claimed: they may be deleted.

        Raises:
            StalePlanError: some were claimed since.
        """
        if state.counters.staging_claims != self.count:
            raise StalePlanError(
                f"stream {state.stream}: files that were staged and not committed were claimed for deletion meanwhile, "
                f"and those of this commit may be among them; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class RowsCompared:
    """Rows of the added files were compared with those of some files, and no sequence stands in both.

    Ranges of sequences may meet those of these files, as the ranges of one shuffle's files do; of every other file
    that stays they may not.
    """

    paths: pa.Array
    """Paths of the files whose rows were compared, strings."""

    def check(self, state: TableState) -> None:
        """Check nothing beyond ranges, which are checked of every swap."""
