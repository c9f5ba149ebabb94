"""The rows of a stream that has grown by assumption: what digests say of them, without opening a data file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Spans
from retention.plan.growth import growth_digests, is_growth
from retention.plan.remaining import RemainingMessages, RemainingRow
from retention.planners.probe import UnopenedRows
from retention.planners.rows import Deletions
from retention.rules.jetstream.max_msgs_per_subject import surplus
from retention.rules.rule import SubjectExcess
from retention.schemas.files import SUBJECT_COUNTS_OF_FILES


@dataclass(frozen=True)
class GrownRows(UnopenedRows):
    """The rows of a stored stream and of its growth."""

    stored: pa.Table
    """The files as stored, `FILE_STATS`; their subjects are those of the growth, too."""

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`, as `Store.subject_counts`."""
        assumed = is_growth(files)
        if not pc.any(assumed).as_py():
            return super().subject_counts(files)
        numbers = np.arange(files.num_rows)
        grown = assumed.to_numpy(zero_copy_only=False)
        counts = super().subject_counts(files.filter(pc.invert(assumed)))
        counts = counts.set_column(
            0,
            SUBJECT_COUNTS_OF_FILES.field("file"),
            pa.array(numbers[~grown][counts["file"].to_numpy()]),
        )
        later = growth_digests(files.filter(assumed), numbers[grown], self._mix)
        return pa.concat_tables([counts, later]).combine_chunks()

    def excess(self, remaining: RemainingMessages, spans: Spans, limit: int) -> SubjectExcess:
        """The messages of each span beyond a limit per subject, counted in this process."""
        return surplus(limit, remaining.subject_counts(self), spans.span_of_file, len(spans))

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """The known deletions in some files; growth has none."""
        assumed = is_growth(remaining.files).to_numpy(zero_copy_only=False)
        return super().deletions(remaining, [row for row in wanted if not assumed[row]])

    @cached_property
    def _mix(self) -> pa.Table:
        """The messages of each subject of the stream as stored."""
        counts = super().subject_counts(self.stored)
        return (
            counts.group_by("subject")
            .aggregate([("messages", "sum")])
            .rename_columns(["subject", "messages"])
            .sort_by("subject")
        )
