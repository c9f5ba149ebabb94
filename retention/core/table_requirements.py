"""Requirements of a commit: what has to hold of a table, or the commit is refused.

A requirement is any frozen type with `check`; stores check every one of a swap, and know none by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counter_names import OPEN_BASE, name_of
from retention.core.inventory import EPOCH, Counters
from retention.errors import StalePlanError
from schemas.bounds import MAX_SEQ

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
            raise StalePlanError(
                f"stream {state.stream}: it was purged meanwhile, or dropped; {PLAN_AGAIN}"
            )


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
class AssertArchiveHead:
    """The newest manifest of the table's archive has this number; 0: there is none."""

    number: int

    def check(self, state: TableState) -> None:
        """Refuse a table of which another run archived files since.

        Raises:
            StalePlanError: one did.
        """
        if state.counters.archive_head != self.number:
            raise StalePlanError(
                f"stream {state.stream}: another run archived files meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertLastRun:
    """No recorded run committed since: the last one that did began at this instant, nanoseconds since the epoch."""

    started_ns: int | None
    """None: none ever did."""

    def check(self, state: TableState) -> None:
        """Refuse a table on which another run committed since.

        Raises:
            StalePlanError: one did.
        """
        if state.counters.last_run_ns != self.started_ns:
            raise StalePlanError(
                f"stream {state.stream}: another run committed meanwhile; nothing was changed; run again"
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


@dataclass(frozen=True)
class AssertSegmentOrder:
    """Every sequence of a segment to which files are added is below the base of the next one, also of the open one.

    With 1 to 10 and 11 to 18 merged as segment 1, a file 19 to 20 that came to segment 11 meanwhile meets none of
    these rows, and yet segment 1 would reach beyond the base 11.
    """

    added: pa.Table
    """The files that the commit adds: `partition`, `segment`, `min_seq` and `max_seq`."""

    def check(self, state: TableState) -> None:
        """Refuse a table in which the segments would not be in order.

        Raises:
            StalePlanError: naming a segment, and the one that begins within it.
        """
        for partition in self.added["partition"].unique().to_pylist():
            new, new_highest = _bases_of(self.added, partition)
            there, highest = _bases_of(state.stays, partition)
            open_base = state.sets.get(name_of(OPEN_BASE, partition), _open_base(state, partition))
            bases = np.concatenate([new, there, [open_base]])
            for base in np.unique(new).tolist():
                reach = int(new_highest[new == base].max())
                behind = int(bases[bases > base].min(initial=MAX_SEQ + 2))
                if reach >= behind:
                    raise _out_of_order(state, base, reach, behind)
                before = int(highest[there < base].max(initial=-1))
                if before >= base:
                    raise _out_of_order(state, int(there[highest == before][0]), before, base)


def _bases_of(files: pa.Table, partition: int) -> tuple[np.ndarray, np.ndarray]:
    """Base and highest sequence (-1: not known) of each file of a partition."""
    inside = files.filter(pc.equal(files["partition"], partition))
    return inside["segment"].to_numpy(), pc.fill_null(inside["max_seq"], -1).to_numpy()


def _open_base(state: TableState, partition: int) -> int:
    return state.in_epoch.open_base.get(partition, 0)


def _out_of_order(state: TableState, base: int, reach: int, behind: int) -> StalePlanError:
    return StalePlanError(
        f"stream {state.stream}: segment {base} would reach to sequence {reach}, and a segment begins at {behind}; "
        f"{PLAN_AGAIN}"
    )
