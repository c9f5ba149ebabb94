"""A table in place, opened for one operation: where it lies, where its records lie, and what it is configured to be."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from retention.config.holds import RowHold
from retention.config.keeping import RunSettings
from retention.core.subjects import path_name
from retention.core.table_policy import EvidenceForm, TablePolicy
from retention.core.units import INT64_MAX
from retention.delta.entries import ENGINE
from retention.history.runs import History, history_of
from retention.storage import files

TableFormatName = Literal["delta", "parquet"]
"""The format of a table in place: a Delta log, or a directory of Parquet files without a log."""


@dataclass(frozen=True)
class OpenedTable:
    """A table that others own; only its log, its data files and its vectors lie at its location."""

    name: str
    location: str
    policy: TablePolicy
    warehouse: str
    clock: Callable[[], int]
    """The wall clock, nanoseconds since the epoch."""
    wait_s: float = 0.0
    """The time to wait for another run on the table to end, in seconds."""
    settings: RunSettings = field(default_factory=RunSettings)
    """Its grace, guards and approval."""
    since_ns: int = INT64_MAX
    """The start of the process's work, nanoseconds since the epoch."""
    exclusive: bool = False
    """Whether no other program writes the table while a run does."""
    evidence: EvidenceForm = "keys"
    """The keys that the records of a run have of the rows that it removed: as they are, hashed, or not at all."""
    format: TableFormatName = "delta"
    holds: tuple[RowHold, ...] = ()
    """The legal holds that the configuration has."""
    file: str = ""
    """The configuration that lists the table; empty: none."""
    ledger: str | None = None
    """The location of the ledger; None: there is none."""

    @property
    def home(self) -> str:
        """The directory of our records of the table, in the warehouse."""
        return files.join(self.warehouse, "tables", path_name(self.name))

    @property
    def history(self) -> History:
        """The runs on the table."""
        return history_of(self.warehouse, self.name)

    @property
    def application(self) -> str:
        """The application id of our commits: the log keeps the start of the last one (`txn`)."""
        return f"{ENGINE}/{hashlib.sha256(self.home.encode()).hexdigest()[:16]}"
