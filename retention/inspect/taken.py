"""The messages that runs removed, from their own records while these exist, later from the evidence of reclaim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.run_evidence import TAKEN, TakenByRun, recorded
from retention.apply.undo_records import kept_runs
from retention.context.context import OpenedStream
from retention.context.run_files import RANGES, REMOVED
from retention.core.units import format_instant
from retention.evidence.months import RemovalEvidence, evidence_directory, month_of


@dataclass(frozen=True)
class EndOfUndo:
    """The end of a run's undo: its files were deleted."""

    at_ns: int
    """Nanoseconds since the epoch."""
    by: str | None
    """The reclaim that deleted them; None: they were deleted before."""

    @property
    def sentence(self) -> str:
        """The end in words."""
        at = format_instant(self.at_ns)
        if self.by is None:
            return f"reclaim found its files deleted at {at}"
        return f"reclaim {self.by} deleted the last of its files at {at}"


class Taken:
    """The known messages that a stream's runs removed; every method raises DamagedError.

    Records are listed before evidence is read, so that entries which a reclaim moves from one to the other meanwhile
    are found.
    """

    def __init__(self, opened: OpenedStream) -> None:
        """List the runs that keep records."""
        self._opened = opened
        self._look()

    def of_run(self, run: str) -> TakenByRun | None:
        """The messages that a run removed; None: it removed none, or they are no longer known.

        Raises:
            DamagedError: a record, or a file of evidence, differs from what was written.
        """
        if RANGES in self._kept.get(run, ()):
            taken = recorded(self._opened, run)
            if taken is not None and taken.is_exact:
                return taken
            # A reclaim has just folded it.
            self._look()
        first = next(self._evidence.of_run(run), None)
        if first is not None:
            is_exact = not first["rules"].null_count
            return TakenByRun(is_exact, partial(self._evidence.of_run, run))
        return recorded(self._opened, run) if run in self._kept else None

    def is_folded(self, run: str) -> bool:
        """Whether reclaim has folded what a run removed into evidence; raises as `of_run`."""
        return next(self._evidence.of_run(run), None) is not None

    def reaching(self, run: str, partition: int, seq: int) -> pa.Table:
        """The rows of a run with ends that enclose a sequence; shape `TAKEN`.

        Raises:
            DamagedError: as `of_run`.
        """
        if run not in self._kept:
            return self._folded(month_of(run), partition, seq).get(run, TAKEN.empty_table())
        taken = self.of_run(run)
        tables = [] if taken is None else taken.tables()
        covering = (
            table.select(TAKEN.names).filter(_covering(table, partition, seq)) for table in tables
        )
        return pa.concat_tables([TAKEN.empty_table(), *(table.cast(TAKEN) for table in covering)])

    def end_of_undo(self, run: str) -> EndOfUndo | None:
        """The end of a run's undo; None: its files are kept, or it is unknown.

        Raises:
            DamagedError: as `of_run`.
        """
        if REMOVED in self._kept.get(run, ()):
            return None
        for rows in self._evidence.of_run(run):
            first = rows.slice(0, 1).to_pylist()[0]
            return EndOfUndo(first["reclaimed_ns"], first["reclaim_run"])
        return None

    def _look(self) -> None:
        self._kept: Mapping[str, list[str]] = kept_runs(self._opened)
        self._evidence = RemovalEvidence(
            evidence_directory(self._opened.warehouse, self._opened.name)
        )
        self._answers: dict[tuple[str, int, int], dict[str, pa.Table]] = {}

    def _folded(self, month: str, partition: int, seq: int) -> dict[str, pa.Table]:
        """Run → its rows of evidence that enclose a sequence, for the runs of a month; shape `TAKEN`."""
        question = (month, partition, seq)
        if question not in self._answers:
            self._answers[question] = {
                run: rows.select(TAKEN.names).cast(TAKEN)
                for run, rows in self._evidence.covering(*question).items()
            }
        return self._answers[question]


def _covering(rows: pa.Table, partition: int, seq: int) -> pa.ChunkedArray:
    """A mask of the rows with ends that enclose a sequence."""
    inside = pc.and_(pc.less_equal(rows["first_seq"], seq), pc.greater_equal(rows["last_seq"], seq))
    return pc.and_(inside, pc.equal(rows["partition"], partition))
