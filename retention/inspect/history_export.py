"""The run history of a stream for an auditor: removed messages, times, rules, operators, and later events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import pyarrow as pa

from retention.context.context import OpenedStream
from retention.core.run_names import started_ns
from retention.history.kinds import PlannedRun, Reclaimed, Repaired, RestoredRun, Undone
from retention.history.record import ABANDONED, BEGUN, RunRecord
from retention.history.runs import history_of
from retention.inspect.removals import RemovalRun
from retention.inspect.segment_losses import segment_losses
from retention.inspect.taken import Taken
from retention.schemas.history_export import EXPORTED_LOSS, EXPORTED_RUN, HISTORY_EXPORT

UNFINISHED = "unfinished"
"""The status of a run without an outcome: it is in progress, or was killed, and the stream's next run settles it."""


@dataclass(frozen=True)
class Period:
    """A period: runs that began at its start or later, and before its end."""

    since_ns: int | None = None
    """Nanoseconds since the epoch; None: from the first run on."""
    until_ns: int | None = None
    """Nanoseconds since the epoch; None: to the last run."""

    def has(self, ns: int) -> bool:
        """Whether the period contains an instant."""
        is_late = self.since_ns is None or self.since_ns <= ns
        return is_late and (self.until_ns is None or ns < self.until_ns)


def exported_runs(opened: OpenedStream, period: Period) -> Iterator[pa.Table]:
    """The runs of a stream that began in a period, the oldest first, in batches; shape `HISTORY_EXPORT`.

    Their later events are included even if these are outside the period.

    Raises:
        DamagedError: a record, or a file of evidence, differs from what was written.
    """
    history, taken = history_of(opened.warehouse, opened.name), Taken(opened)
    outcomes = list(history.outcomes())
    undone = {
        record.undoes: record.run
        for record in outcomes
        if isinstance(record, Undone) and record.is_done
    }
    begun = (history.begun(run) for run in history.unfinished())
    records = [*outcomes, *(record for record in begun if record is not None)]
    for record in sorted(records, key=attrgetter("run")):
        removal = RemovalRun(opened, record, undone.get(record.run), taken)
        if period.has(removal.removed_ns):
            yield from _ExportedRun(removal).tables()


def initiator_columns(record: RunRecord) -> dict[str, object]:
    """The columns of the user, machine, process and scheduler that ran it."""
    who = record.who if isinstance(record.who, Mapping) else {}
    scheduler = who.get("scheduler")
    return {
        **{name: who.get(name) for name in ("user", "host", "program")},
        "process": who.get("pid"),
        "scheduler": json.dumps(scheduler, sort_keys=True) if scheduler else None,
    }


@dataclass(frozen=True)
class _ExportedRun:
    removal: RemovalRun

    def tables(self) -> Iterator[pa.Table]:
        """Its rows, at least one."""
        if self._losses is None:
            yield self._with(_NO_LOSS)
            return
        for rows in self._losses.tables():
            if rows.num_rows:
                yield self._with(segment_losses(rows))

    @cached_property
    def _losses(self) -> Any:
        """The messages that it removed; None: it removed none, they are unknown, or it did not certainly commit."""
        if not self._may_count:
            return None
        taken = self.removal.ranges()
        if taken is None or not (taken.is_exact or self.removal.messages):
            return None
        return taken if any(rows.num_rows for rows in taken.tables()) else None

    @property
    def _outcome(self) -> RunRecord:
        return self.removal.outcome

    @property
    def _may_count(self) -> bool:
        return self._outcome.status not in {ABANDONED, BEGUN}

    def _with(self, losses: pa.Table) -> pa.Table:
        """Losses, each with the run's columns."""
        run = [
            pa.array([self._run[field.name]] * losses.num_rows, field.type)
            for field in EXPORTED_RUN
        ]
        return pa.table([*run, *losses.columns], schema=HISTORY_EXPORT)

    @cached_property
    def _run(self) -> dict[str, object]:
        """The columns of the run by name."""
        removal, outcome = self.removal, self._outcome
        ended = removal.taken.end_of_undo(removal.run)
        repair = f" {outcome.repair}" if isinstance(outcome, Repaired) else ""
        return {
            "stream": removal.opened.name,
            "run": removal.run,
            "kind": f"{outcome.kind}{repair}",
            "status": UNFINISHED if outcome.status == BEGUN else outcome.status,
            "began": removal.removed_ns,
            "as_of": outcome.as_of_ns,
            "plan_id": outcome.plan_id if isinstance(outcome, PlannedRun) else None,
            **initiator_columns(outcome),
            "reasons": [removal.reason(rule) for rule in outcome.by_rule],
            **(self._amounts() if self._may_count else dict.fromkeys(_AMOUNTS, 0)),
            "undoes": outcome.undoes if isinstance(outcome, Undone) else None,
            "undone_by": removal.undone_by,
            "undone": removal.undone_by and started_ns(removal.undone_by, 0),
            "reclaimed_by": ended and ended.by,
            "reclaimed": ended and ended.at_ns,
            "archive": outcome.archived and outcome.archived.manifest,
            "evidence": self._evidence(),
        }

    def _amounts(self) -> dict[str, int]:
        outcome = self._outcome
        back = (0, 0)
        if isinstance(outcome, Undone | RestoredRun):
            back = (outcome.restored_messages, outcome.restored_bytes)
        dead = outcome.reclaimed.values() if isinstance(outcome, Reclaimed) else ()
        amounts = (
            outcome.removed_messages,
            outcome.removed_bytes,
            *back,
            sum(of.files for of in dead),
            sum(of.bytes for of in dead),
        )
        return dict(zip(_AMOUNTS, amounts, strict=True))

    def _evidence(self) -> str | None:
        """The word for the evidence of its messages; None: it has no outcome yet."""
        if self._outcome.status == BEGUN:
            return None
        if self._losses is not None:
            return "messages" if self._losses.is_exact else "files"
        return "deleted" if self._may_count and self.removal.messages else "none"


_AMOUNTS = (
    *("removed_messages", "removed_bytes", "restored_messages", "restored_bytes"),
    *("deleted_files", "deleted_file_bytes"),
)
_NO_LOSS = pa.table([pa.nulls(1, field.type) for field in EXPORTED_LOSS], schema=EXPORTED_LOSS)


def history_table(tables: Sequence[pa.Table]) -> pa.Table:
    """Exported runs as one table; shape `HISTORY_EXPORT`."""
    return pa.concat_tables([HISTORY_EXPORT.empty_table(), *tables])
