"""A change of a table as a value: everything that one run commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from retention.ports import LostCommit
from retention.schemas.empty import empty_table
from retention.schemas.files import FILE_STATS

if TYPE_CHECKING:
    from retention.apply.archive import Archived
    from retention.core.table_requirements import TableRequirement
    from retention.core.table_updates import TableUpdate


@dataclass(frozen=True)
class Change:
    """Everything that a run changes in a table."""

    remove: pa.Table = field(default_factory=partial(empty_table, FILE_STATS))
    """The files to remove, shape `FILE_STATS`."""
    add: pa.Table = field(default_factory=partial(empty_table, FILE_STATS))
    """Staged files, shape `FILE_STATS`; undoing the run removes them."""
    publish: pa.Table = field(default_factory=partial(empty_table, FILE_STATS))
    """Staged files of new messages, shape `FILE_STATS`; undoing the run keeps them."""
    ranges: Iterable[pa.Table] | None = None
    """The messages to remove, in batches; shape `RUN_RANGES`. None: the run has nothing to undo; `()`: it
    removes none but moves rows, so that undos of earlier runs follow its files."""
    stepped_over: Mapping[int, int] = field(default_factory=dict)
    """Partition → the highest sequence that counts as removed, in addition to those of `ranges`."""
    begins_epoch: bool = False
    """Whether offsets restart: nothing of the new epoch was removed."""
    archived: Archived | None = None
    """The copies of the removed files, whose manifest the commit names; None: nothing was archived."""
    asks_consumers: bool = False
    """Whether the change depends on consumers: none may have been edited since the snapshot."""
    requirements: Sequence[TableRequirement] = ()
    """Conditions of the commit beyond those of every run."""
    updates: Sequence[TableUpdate] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the log entry besides the run's name."""
    data_change: bool = True
    again: LostCommit | None = None
    """The lost commit that this one repeats."""

    @property
    def is_undoable(self) -> bool:
        """Whether the records that an undo needs, of files and messages, are kept."""
        return self.ranges is not None
