"""A table in place at one version with our records of it, each read once, for its checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from retention.delta.snapshot import DeltaSnapshot
from retention.history.kinds import TableApplied, TableUndone
from retention.history.record import RunRecord
from retention.storage import files
from retention.tables.erasures import rewritten_records
from retention.tables.opened import OpenedTable
from retention.tables.records import read_digests
from retention.verify.runs import RecordedRuns

FROM_COPY = "restore the file from a copy of the table"


@dataclass(frozen=True)
class TableToVerify:
    """A table at one version, and our records of it."""

    table: OpenedTable
    snapshot: DeltaSnapshot

    @cached_property
    def adds(self) -> Mapping[str, Mapping[str, Any]]:
        """Decoded path → the `add` action of each live file."""
        every = self.snapshot.adds_of(range(self.snapshot.files.num_rows))
        return {unquote(add["path"]): add for add in every}

    @cached_property
    def ours(self) -> Mapping[str, str]:
        """Path of each live file that runs wrote → the digest that was taken then.

        Raises:
            DamagedError: a record of digests cannot be read.
        """
        return {path: sha for path, sha in read_digests(self.table).items() if path in self.adds}

    @property
    def outcomes(self) -> list[RunRecord]:
        """The outcomes of its runs, newest first.

        Raises:
            DamagedError: a record of the run history is damaged.
        """
        return self._runs.outcomes

    @cached_property
    def _runs(self) -> RecordedRuns:
        return RecordedRuns.of(self.table.history)

    @cached_property
    def rewritten(self) -> Mapping[tuple[str, str], str]:
        """Run and name of each record that an erasure rewrote → its SHA-256 since; empty: the erasure is unfinished.

        Raises:
            DamagedError: the record of an erasure is damaged.
        """
        return rewritten_records(self.table)

    @property
    def passes(self) -> list[TableApplied]:
        """The passes that committed, newest first."""
        passes = (each for each in self.outcomes if isinstance(each, TableApplied))
        return [each for each in passes if each.is_done]

    @property
    def standing(self) -> list[TableApplied]:
        """The passes that are not undone, newest first."""
        undone = {each.undoes for each in self._runs.counting if isinstance(each, TableUndone)}
        return [each for each in self.passes if each.run not in undone]

    def location_of(self, path: str) -> str:
        """The location of a file of the table."""
        return files.join(self.table.location, path)
