"""The files that a plan was made from, and the causes of plans that are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.plan.cause import Cause
from retention.plan.removed_ranges import RemovedRanges
from retention.rules import RULES
from retention.schemas.empty import empty_table
from retention.schemas.plan import CAUSE_FILES, RULE_NUMBER

if TYPE_CHECKING:
    from retention.core.spans import Array
    from retention.plan.remaining import RemainingMessages
    from retention.rules.fold import Evaluation
    from retention.rules.row_verdicts import Answer


@dataclass(frozen=True)
class Remaining:
    """Unreleased messages and bytes of each file of an inventory; int64, 0 if all are released."""

    messages: Array
    bytes: Array


@dataclass(frozen=True)
class CauseFiles:
    """The files that a plan was made from; the tables are the original ones, never copies."""

    files: pa.Table = field(default_factory=partial(empty_table, CAUSE_FILES))
    """Every file of the inventory, in its order; the columns of `CAUSE_FILES`, and others."""
    remaining: Remaining | None = None
    """Messages and bytes that consumers did not release; None: nothing was released."""
    parts: RemovedRanges = field(default_factory=RemovedRanges)
    """Ranges that rules remove from files, read from rows; includes files removed completely, and
    files kept because their segment is kept. `file` is a row number of `files`."""

    def highest(self, partition: int) -> int | None:
        """The highest sequence in the files of a partition; None: they have no message."""
        highest: int | None = pc.max(
            self.files.filter(self.in_partition(partition))["max_seq"]
        ).as_py()
        return highest

    def in_partition(self, partition: int) -> pa.ChunkedArray:
        """A mask of the files of a partition."""
        return pc.equal(self.files["partition"], partition)

    def covering(self, partition: int, first: int, last: int) -> Array:
        """Row numbers of the files that overlap the sequences from `first` to `last`, both ends inclusive."""
        meets = pc.and_(
            self.in_partition(partition),
            pc.and_(
                pc.less_equal(self.files["min_seq"], last),
                pc.greater_equal(self.files["max_seq"], first),
            ),
        )
        return np.flatnonzero(meets.to_numpy())

    def above(self, partition: int, seq: int) -> Array:
        """Row numbers of the files with only higher sequences."""
        higher = pc.and_(self.in_partition(partition), pc.greater(self.files["min_seq"], seq))
        return np.flatnonzero(higher.to_numpy())

    def remaining_of(self, numbers: Array) -> tuple[int, int]:
        """Count the unreleased messages and bytes of files, given by row numbers."""
        if self.remaining is not None:
            left = self.remaining
            return int(left.messages[numbers].sum()), int(left.bytes[numbers].sum())
        some = self.files.select(["messages", "bytes"]).take(pa.array(numbers))
        return tuple(int(pc.sum(some[name], min_count=0).as_py()) for name in some.schema.names)  # type: ignore[return-value]

    def parts_of(self, number: int, rules: Sequence[str] = RULES) -> pa.Table:
        """Ranges that some rules remove from one file, read from rows; shape `REMOVED_RANGES`, ascending."""
        ranges = self.parts.of_file(number)
        wanted = pa.array([RULES.index(rule) for rule in rules], RULE_NUMBER)
        return ranges.filter(pc.is_in(ranges["rule"], value_set=wanted))


def cause_of_files(inventory: Inventory) -> Cause:
    """The cause of a plan without consumers and without an age scan."""
    counters = inventory.counters
    return Cause(partial(CauseFiles, inventory.files), counters.next_seq, counters.open_base)


def cause_of_pass(
    left: RemainingMessages,
    policy: Policy,
    decided: Evaluation,
    answers: Sequence[Answer],
    parts: RemovedRanges,
) -> Cause:
    """The cause of the plan of a pass.

    Args:
        left: the stream, and the messages not released by consumers.
        policy: the stream's rules.
        decided: the pass over the remaining messages.
        answers: the rows' answers to its questions.
        parts: ranges that rules remove from files, read from rows; `file` is a row number of the inventory.
    """
    remaining = None if policy.retention == "limits" else _remaining(left)
    return replace(
        cause_of_files(left.inventory),
        read_files=partial(CauseFiles, left.inventory.files, remaining, parts),
        scan_end=_scan_end(decided, answers),
    )


def _remaining(left: RemainingMessages) -> Remaining:
    counts = []
    for name in ("messages", "bytes"):
        counted = np.zeros(left.inventory.files.num_rows, dtype=np.int64)
        counted[left.numbers] = left.files[name].to_numpy()
        counts.append(counted)
    return Remaining(*counts)


def _scan_end(decided: Evaluation, answers: Sequence[Answer]) -> int | None:
    """The message at which the age scan ends; None if it does not end, or does not run."""
    scan, spans = decided.scan, decided.spans
    if scan is None:
        return None
    stops = [answer.stop_seq for answer in answers if answer.stop_seq is not None]
    if stops:
        return min(stops)
    if not len(spans) or decided.ask[scan.reach - 1]:
        return None
    return int(spans.min_seq[scan.reach - 1]) if scan.may_stop[scan.reach - 1] else None
