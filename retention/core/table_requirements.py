"""Requirements of a commit: conditions on the table; if one is not met, the commit is refused.

A requirement is any frozen type with `check`; stores check all requirements of a swap, and know
none by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counter_names import OPEN_BASE, name_of
from retention.core.counters import EPOCH, Counters
from retention.errors import StalePlanError
from retention.schemas.bounds import MAX_SEQ

PLAN_AGAIN = "nothing was changed; plan again"


@dataclass(frozen=True)
class TableState:
    """The version of a table that a commit is checked against."""

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
        """The counters of the epoch after the commit: empty if the commit begins another epoch."""
        return Counters() if EPOCH in self.sets else self.counters


class TableRequirement(Protocol):
    """A condition of a commit, checked again on every version that the commit is attempted on."""

    def check(self, state: TableState) -> None:
        """Check the requirement against a table.

        Raises:
            StalePlanError: the requirement is no longer met.
        """
        ...


@dataclass(frozen=True)
class AssertEpoch:
    """The counters count in this epoch; 0 is the first."""

    number: int

    def check(self, state: TableState) -> None:
        """Refuse a table purged since.

        Raises:
            StalePlanError: it is in another epoch.
        """
        if state.counters.epoch != self.number:
            raise StalePlanError(
                f"stream {state.stream}: it was purged meanwhile, or dropped; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertConsumerEdits:
    """Consumers were created, edited and deleted exactly this many times."""

    count: int

    def check(self, state: TableState) -> None:
        """Refuse a table with a consumer edited since.

        Raises:
            StalePlanError: one was.
        """
        if state.counters.consumers != self.count:
            raise StalePlanError(
                f"stream {state.stream}: a consumer was created, edited or deleted meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertHoldEdits:
    """Legal holds were placed and released exactly this many times, so that a removal was planned under all of them."""

    count: int

    def check(self, state: TableState) -> None:
        """Refuse a table with a legal hold placed or released since.

        Raises:
            StalePlanError: one was.
        """
        if state.counters.holds != self.count:
            raise StalePlanError(
                f"stream {state.stream}: a legal hold was placed or released meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertClaims:
    """Dead files were claimed exactly this many times, so no file that the commit restores is being deleted."""

    count: int

    def check(self, state: TableState) -> None:
        """Refuse a table with dead files claimed since.

        Raises:
            StalePlanError: some were.
        """
        if state.counters.claims != self.count:
            raise StalePlanError(
                f"stream {state.stream}: dead files were claimed for deletion meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertStagingClaims:
    """Staging files were claimed exactly this many times, counted before those of the commit were written."""

    count: int

    def check(self, state: TableState) -> None:
        """Refuse to commit files staged before such a claim: they may be deleted.

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
    """The newest manifest of the table's archive has this number; 0: it has no archive."""

    number: int

    def check(self, state: TableState) -> None:
        """Refuse a table with files archived by another run since.

        Raises:
            StalePlanError: one did.
        """
        if state.counters.archive_head != self.number:
            raise StalePlanError(
                f"stream {state.stream}: another run archived files meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertReplay:
    """The record from which the next pass goes on with its replay has this number; 0: there is none."""

    number: int

    def check(self, state: TableState) -> None:
        """Refuse a table whose replay another run has taken further, or back.

        Raises:
            StalePlanError: one did.
        """
        if state.counters.replay != self.number:
            raise StalePlanError(
                f"stream {state.stream}: another run replayed it meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertHistoryHead:
    """The last run in the chain of the run history has this number; 0: no run is chained."""

    number: int

    def check(self, state: TableState) -> None:
        """Refuse a table with a commit of another recorded run since.

        Raises:
            StalePlanError: one did.
        """
        if state.counters.history_head != self.number:
            raise StalePlanError(
                f"stream {state.stream}: another run committed meanwhile; {PLAN_AGAIN}"
            )


@dataclass(frozen=True)
class AssertLastRun:
    """No recorded run committed since: the last one to commit began at this instant, nanoseconds since the epoch."""

    started_ns: int | None
    """None: no run ever committed."""

    def check(self, state: TableState) -> None:
        """Refuse a table with a commit of another run since.

        Raises:
            StalePlanError: one did.
        """
        if state.counters.last_run_ns != self.started_ns:
            raise StalePlanError(
                f"stream {state.stream}: another run committed meanwhile; nothing was changed; run again"
            )


@dataclass(frozen=True)
class RowsCompared:
    """Rows of the added files were compared with those of some live files, and share no sequence with them.

    Ranges of sequences may overlap those of the compared files, as within the files of one shuffle;
    they may not overlap those of any other remaining file.
    """

    paths: pa.Array
    """Paths of the files with compared rows, strings."""

    def check(self, state: TableState) -> None:
        """Check nothing: ranges are checked for every swap."""


@dataclass(frozen=True)
class AssertSegmentOrder:
    """Segments that gain files end below the base of the next segment, including the open one.

    Say 1 to 10 and 11 to 18 are merged as segment 1, and a file 19 to 20 was added to segment 11
    meanwhile: it overlaps none of these rows, and yet segment 1 would reach beyond base 11.
    """

    added: pa.Table
    """The files that the commit adds: `partition`, `segment`, `min_seq` and `max_seq`."""

    def check(self, state: TableState) -> None:
        """Refuse a table in which the segments would overlap.

        Raises:
            StalePlanError: names a segment, and the segment that begins within it.
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
    """Base and highest sequence (-1: unknown) of each file of a partition."""
    inside = files.filter(pc.equal(files["partition"], partition))
    return inside["segment"].to_numpy(), pc.fill_null(inside["max_seq"], -1).to_numpy()


def _open_base(state: TableState, partition: int) -> int:
    return state.in_epoch.open_base.get(partition, 0)


def _out_of_order(state: TableState, base: int, reach: int, behind: int) -> StalePlanError:
    return StalePlanError(
        f"stream {state.stream}: segment {base} would reach to sequence {reach}, and a segment begins at {behind}; "
        f"{PLAN_AGAIN}"
    )
