"""The records of runs as a verification reads them: none is missed that ends meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from retention.history.record import RunRecord
from retention.history.runs import History


@dataclass(frozen=True)
class RecordedRuns:
    """The records of runs; one that ended while they were read has both."""

    under_way: list[RunRecord]
    """The intents of runs without an outcome, oldest first."""
    outcomes: list[RunRecord]
    """The outcomes, newest first."""

    @classmethod
    def of(cls, history: History) -> RecordedRuns:
        """The records of a run history, the intents read first.

        Raises:
            DamagedError: a record is damaged.
        """
        under_way = [intent for run in history.unfinished() if (intent := history.begun(run))]
        return cls(under_way, list(history.outcomes()))

    @property
    def counting(self) -> list[RunRecord]:
        """The records of the runs that committed, or may have: those without an outcome among them."""
        return [*self.under_way, *(record for record in self.outcomes if record.may_count)]
