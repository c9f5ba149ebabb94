"""The actions of a plan: one value per kind with a table of all its files, because plans touch 100,000 files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.column_values import equals_text, total
from retention.core.row_numbers import rows_at
from retention.plan.identity import identity, part_digests
from retention.plan.removed_ranges import FileRanges, RemovedRanges
from retention.plan.rule_rows import messages_by_rule, rule_counts
from retention.schemas.empty import empty_table
from retention.schemas.plan import PLANNED_FILES, PLANNED_MARKERS, PLANNED_RULES
from retention.schemas.rule_names import RULE_NAMES

if TYPE_CHECKING:
    from retention.core.spans import Array

DROP, REWRITE = "drop", "rewrite"
"""Kinds of action on a file, the values of the column `action` of `PLANNED_FILES`."""


@dataclass(frozen=True)
class FileDrop:
    """Files to remove completely."""

    files: pa.Table
    """Shape `PLANNED_FILES`."""


@dataclass(frozen=True)
class PartialRemoval:
    """Files that lose a part of their rows."""

    files: pa.Table
    """Shape `PLANNED_FILES`."""
    numbers: Array
    """Each file's row number among all files of the plan."""
    removed: RemovedRanges
    """Ranges of sequences to remove from these files, and from others of the plan."""

    def ranges(self) -> list[Array | FileRanges]:
        """The sequences to remove from each file, as ascending ranges, both ends inclusive; shape (n, 2) each."""
        return self.removed.of_files(self.numbers)


class Rewrite(PartialRemoval):
    """Files to replace by copies without some of their rows."""


@dataclass(frozen=True)
class SequenceUse:
    """Sequences that the plan uses: for appended delete markers, or skipped by a purge."""

    markers: pa.Table
    """Delete markers that remain after the pass; shape `PLANNED_MARKERS`."""
    first: int
    """The stream's next sequence before the action."""
    after: int
    """The stream's next sequence after the action."""


Action = FileDrop | Rewrite | SequenceUse


@dataclass(frozen=True)
class Actions:
    """All actions of a plan, as tables."""

    files: pa.Table = field(default_factory=partial(empty_table, PLANNED_FILES))
    """Every file that the plan touches, in order; shape `PLANNED_FILES`."""
    rules: pa.Table = field(default_factory=partial(empty_table, PLANNED_RULES))
    """Messages and bytes that each rule removes from each of `files`; shape `PLANNED_RULES`."""
    removed: RemovedRanges = field(default_factory=RemovedRanges)
    """Ranges of sequences to remove from partly removed files; `file` is a row number of `files`."""
    markers: pa.Table = field(default_factory=partial(empty_table, PLANNED_MARKERS))
    """Subject-delete markers that remain after the pass; shape `PLANNED_MARKERS`."""
    sequences: tuple[int, int] | None = None
    """Sequences used by markers (including markers evicted again) or skipped by a purge: the first,
    and the next after the last; None: the next sequence is unchanged."""

    @property
    def file_count(self) -> int:
        """The number of files that the plan touches."""
        return int(self.files.num_rows)

    @property
    def marker_count(self) -> int:
        """The number of delete markers to write."""
        return int(self.markers.num_rows)

    @cached_property
    def removed_messages(self) -> int:
        """The number of messages to remove."""
        return total(self.files["removed_messages"])

    @cached_property
    def removed_bytes(self) -> int:
        """The bytes to remove, by the broker's accounting."""
        return total(self.files["removed_bytes"])

    @property
    def bytes_rewritten(self) -> int:
        """The lengths of the files that lose some of their messages, as they are now."""
        return total(self.rewrite.files["file_bytes"])

    @cached_property
    def by_rule(self) -> dict[str, int]:
        """Messages to remove, by rule; rules that remove none are omitted."""
        return messages_by_rule(self.rules)

    def by_rule_of(self, files: pa.Array) -> dict[str, int]:
        """Messages to remove from files at some paths, by rule; rules that remove none are omitted."""
        numbers = pc.indices_nonzero(pc.is_in(self.files["path"], value_set=files))
        return messages_by_rule(self.rules.filter(pc.is_in(self.rules["file"], value_set=numbers)))

    def identity(self, header: Mapping[str, object]) -> str:
        """The identity of a plan with these actions under a header, as `plan.identity`."""
        tables = (self.files, self.rules, self.markers)
        return identity(header, tables, part_digests(self.files, self.removed))

    def tables(self) -> Actions:
        """Itself: it has its tables."""
        return self

    @property
    def removal(self) -> str:
        """The identity of the removal alone: files, messages and rules."""
        return identity({}, (self.files, self.rules), part_digests(self.files, self.removed))

    def __iter__(self) -> Iterator[Action]:
        """Iterate over the kinds of action, each with all its files; kinds without effect are skipped."""
        to_files = (self.drop, self.rewrite)
        yield from (action for action in to_files if action.files.num_rows)
        if self.sequence_use is not None:
            yield self.sequence_use

    @property
    def drop(self) -> FileDrop:
        """The files to remove completely."""
        return FileDrop(self.files.filter(pc.equal(self.files["action"], DROP)))

    @cached_property
    def rewrite(self) -> Rewrite:
        """The files to copy without some rows."""
        return Rewrite(*self._with_action(REWRITE), self.removed)

    @property
    def sequence_use(self) -> SequenceUse | None:
        """The sequences used; None: the next sequence is unchanged."""
        return None if self.sequences is None else SequenceUse(self.markers, *self.sequences)

    @property
    def files_with_rules(self) -> pa.Table:
        """The files, with a column `by_<rule>` of messages that each rule removes."""
        counts, files = rule_counts(self.rules, self.files.num_rows), self.files
        for at, rule in enumerate(RULE_NAMES):
            files = files.append_column(f"by_{rule}", pa.array(counts[:, at]))
        return files

    def _with_action(self, action: str) -> tuple[pa.Table, Array]:
        """The files with an action, and their row numbers in `files`."""
        numbers = np.flatnonzero(equals_text(self.files["action"], action))
        return rows_at(self.files, numbers), numbers
