"""The actions of a plan: small types, each over all files that it is done to, because plans touch 100,000 files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Array
from retention.plan.removed_ranges import FileRanges, RemovedRanges
from retention.plan.rule_rows import rule_counts
from schemas.plan import (
    PLANNED_FILES,
    PLANNED_MARKERS,
    PLANNED_RULES,
    RULE_NAMES,
)

DROP, REWRITE, TOMBSTONE = "drop", "rewrite", "tombstone"
"""Kinds of action on a file, as the column `action` of `PLANNED_FILES` has them."""


@dataclass(frozen=True)
class Drop:
    """Files that go whole."""

    files: pa.Table
    """Shape `PLANNED_FILES`."""


@dataclass(frozen=True)
class PartialRemoval:
    """Files that lose some of their rows."""

    files: pa.Table
    """Shape `PLANNED_FILES`."""
    numbers: Array
    """Each file's row number among all files of the plan."""
    removed: RemovedRanges
    """Ranges of sequences that go of these files, and of others of the plan."""

    def ranges(self) -> list[Array | FileRanges]:
        """The sequences that go of each file, as ascending ranges, both ends inclusive; shape (n, 2) each."""
        return self.removed.of_files(self.numbers)


class Rewrite(PartialRemoval):
    """Files whose place is taken by copies without some of their rows."""


class Tombstone(PartialRemoval):
    """Files that stay, and of which nobody reads some rows any more."""


@dataclass(frozen=True)
class Mark:
    """Sequences that are used up: by delete markers, which are appended, or because a purge steps over them."""

    markers: pa.Table
    """Delete markers that are left when the pass is over; shape `PLANNED_MARKERS`."""
    first: int
    """The stream's next sequence before the action."""
    after: int
    """The stream's next sequence behind the action."""


Action = Drop | Rewrite | Tombstone | Mark


@dataclass(frozen=True)
class Actions:
    """Everything that a plan does, in columns."""

    files: pa.Table = field(default_factory=PLANNED_FILES.empty_table)
    """Every file that the plan touches, in order; shape `PLANNED_FILES`."""
    rules: pa.Table = field(default_factory=PLANNED_RULES.empty_table)
    """Messages and bytes that each rule takes of each of `files`; shape `PLANNED_RULES`."""
    removed: RemovedRanges = field(default_factory=RemovedRanges)
    """Ranges of sequences that go of files that do not go whole; `file` being a row number of `files`."""
    markers: pa.Table = field(default_factory=PLANNED_MARKERS.empty_table)
    """Subject-delete markers that are left when the pass is over; shape `PLANNED_MARKERS`."""
    sequences: tuple[int, int] | None = None
    """Sequences that markers use, also markers evicted again, or that a purge steps over: the first, and the next
    after the last; None: the next sequence stays."""

    def __iter__(self) -> Iterator[Action]:
        """Iterate over the kinds of action, each once over everything that it is done to; none that does nothing."""
        to_files = (self.drop, self.rewrite, self.tombstone)
        yield from (action for action in to_files if action.files.num_rows)
        if self.mark is not None:
            yield self.mark

    @property
    def drop(self) -> Drop:
        """The files that go whole."""
        return Drop(self.files.filter(pc.equal(self.files["action"], DROP)))

    @property
    def rewrite(self) -> Rewrite:
        """The files that are copied without some rows."""
        return Rewrite(*self._with_action(REWRITE), self.removed)

    @property
    def tombstone(self) -> Tombstone:
        """The files that stay although some of their rows go."""
        return Tombstone(*self._with_action(TOMBSTONE), self.removed)

    @property
    def mark(self) -> Mark | None:
        """The sequences that are used; None: the next sequence stays."""
        return None if self.sequences is None else Mark(self.markers, *self.sequences)

    @property
    def files_with_rules(self) -> pa.Table:
        """The files, with a column `by_<rule>` for what each rule takes of them."""
        counts, files = rule_counts(self.rules, self.files.num_rows), self.files
        for at, rule in enumerate(RULE_NAMES):
            files = files.append_column(f"by_{rule}", pa.array(counts[:, at]))
        return files

    @property
    def leaving(self) -> pa.Table:
        """The files that do not stay; shape `PLANNED_FILES`."""
        return _leaving(self.files)

    @property
    def leaving_with_rules(self) -> pa.Table:
        """The files that do not stay, with the columns of `files_with_rules`."""
        return _leaving(self.files_with_rules)

    def _with_action(self, action: str) -> tuple[pa.Table, Array]:
        """The files with an action, and their row numbers in `files`."""
        mask = pc.equal(self.files["action"], action)
        return self.files.filter(mask), np.flatnonzero(mask.to_numpy())


def _leaving(files: pa.Table) -> pa.Table:
    return files.filter(pc.not_equal(files["action"], TOMBSTONE))
