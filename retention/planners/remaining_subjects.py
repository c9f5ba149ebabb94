"""Facts about the subjects of a stream's remaining messages, from subject digests and searches for deletions."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from retention.core.spans import Spans
from retention.plan.remaining import RemainingMessages
from retention.planners.deleted_subjects import deleted_subjects, digests_between
from retention.planners.rows import StreamRows
from retention.rules.deleted_subjects import DeletedSubjects
from retention.rules.rule import SubjectExcess


@dataclass(frozen=True)
class RemainingSubjects:
    """The subjects of the remaining messages; implements `SubjectSource`."""

    remaining: RemainingMessages
    spans: Spans
    rows: StreamRows

    @property
    def files(self) -> pa.Table:
        """The files with remaining messages."""
        return self.remaining.files

    def digests(self, first: int, end: int) -> pa.Table:
        """The digests of neighbouring files; `file` is a row number among all files."""
        return digests_between(self.remaining, self.rows, first, end)

    def excess(self, limit: int) -> SubjectExcess:
        """Count the messages of each span beyond a limit per subject, by digests."""
        return self.rows.excess(self.remaining, self.spans, limit)

    def deleted(self, until_ns: int, limit: int | None) -> DeletedSubjects | None:
        """Find the subjects with a deletion as their last message; None: nothing was stored by `until_ns`."""
        return deleted_subjects(self.remaining, until_ns, limit, self.rows)
