"""Runs in brief, for lists and reports: what each did, what it removed or restored, and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from retention.history.initiator import initiator_text
from retention.history.kinds import (
    Applied,
    OfTable,
    PermittedRun,
    PlannedRun,
    Repaired,
    RestoredRun,
    TableApplied,
    TableRun,
    TableUndone,
    Undone,
)
from retention.history.record import ABANDONED, RunRecord


@dataclass(frozen=True)
class RunSummary:
    """One run of a stream or table."""

    record: RunRecord
    undone_by: str | None
    """The run that undid it; None: none did."""

    @property
    def run(self) -> str:
        """The run's name."""
        return self.record.run

    @property
    def is_pass(self) -> bool:
        """Whether it applied the rules of a policy."""
        return isinstance(self.record, Applied | TableApplied)

    @property
    def removed(self) -> int:
        """The messages or rows that it removed."""
        return max(-amount_of(self.record)[0], 0)

    @property
    def before(self) -> int | None:
        """The messages or rows before it; None: they were not counted."""
        markers = self.record.markers if isinstance(self.record, PlannedRun) else 0
        return None if self.after is None else self.after - amount_of(self.record)[0] - markers

    @property
    def after(self) -> int | None:
        """The messages or rows after it; None: they were not counted."""
        return kept_of(self.record)

    @property
    def who(self) -> str:
        """The user, machine and process that ran it, in words."""
        return initiator_text(self.record.who)

    @property
    def seconds(self) -> float | None:
        """Its duration; None: it was not measured."""
        record = self.record
        return record.seconds if isinstance(record, PlannedRun | TableRun) else None

    @property
    def files_read(self) -> int | None:
        """The files that it read; None: they were not counted."""
        record = self.record
        return record.files_read if isinstance(record, PlannedRun | TableApplied) else None

    @property
    def parts(self) -> Mapping[str, int]:
        """The fates of its segments, or of the files of a table: word → number."""
        record = self.record
        if isinstance(record, PlannedRun) and record.segments is not None:
            segments = record.segments
            return {name: getattr(segments, name) for name in ("dropped", "rewritten", "kept")}
        if isinstance(record, TableRun):
            return {"dropped": record.files_dropped, "cut": record.files_cut}
        return {}

    @property
    def guards(self) -> Sequence[Mapping[str, object]]:
        """The guards that it exceeded, as in `GuardFinding.as_json`."""
        findings = self.record.guards if isinstance(self.record, PermittedRun) else None
        return findings if isinstance(findings, list | tuple) else ()


def summaries(records: Sequence[RunRecord]) -> list[RunSummary]:
    """Runs in brief, in the order of their records."""
    undone = {
        record.undoes: record.run
        for record in records
        if isinstance(record, Undone | TableUndone) and record.is_done
    }
    return [RunSummary(record, undone.get(record.run)) for record in records]


def kind_text(record: RunRecord) -> str:
    """The kind of a run and, unless it is done, its status."""
    what = record.kind.removesuffix("_table") if isinstance(record, OfTable) else record.kind
    if isinstance(record, Repaired):
        what = f"repair {record.repair}"
    elif isinstance(record, Undone | TableUndone):
        what = f"undo of {record.undoes}"
    return what if record.is_done else f"{what}, {record.status}"


def kept_of(record: RunRecord) -> int | None:
    """The messages or rows after a run; None: they were not counted."""
    return record.kept_rows if isinstance(record, TableRun) else record.kept_messages


def amount_of(record: RunRecord) -> tuple[int, int]:
    """Messages that a run restored, or removed (negative), and their bytes; zero for a run that committed nothing."""
    if record.status == ABANDONED:
        return 0, 0
    if isinstance(record, Undone | RestoredRun):
        return record.restored_messages, record.restored_bytes
    if isinstance(record, TableUndone):
        return record.restored_rows, 0
    if isinstance(record, TableRun):
        return -record.removed_rows, record.removed_bytes
    return -record.removed_messages, record.removed_bytes
