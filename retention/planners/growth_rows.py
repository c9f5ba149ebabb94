"""The rows of a stream that has grown by assumption: what digests say of them, read once for many estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.spans import Spans
from retention.plan.growth import growth_digests, is_growth
from retention.plan.remaining import RemainingMessages, RemainingRow
from retention.planners.deleted_subjects import joined, known_by_file
from retention.planners.probe import UnopenedRows
from retention.planners.rows import Deletions
from retention.planners.subject_shuffle import HELD_BYTES
from retention.rules.jetstream.max_msgs_per_subject import surplus
from retention.rules.rule import SubjectExcess
from retention.schemas.files import SUBJECT_COUNTS_OF_FILES
from retention.stores.sidecar import subject_digests


@dataclass(frozen=True)
class GrownRows(UnopenedRows):
    """The rows of a stored stream and of its growth."""

    stored: pa.Table
    """The files as stored, `FILE_STATS`; their subjects are those of the growth, too."""

    _excess: dict[int, SubjectExcess] = field(default_factory=dict, compare=False)
    """The excess of the stored files over the last limit that was asked for."""
    _deletions: dict[str, pa.Table | None] = field(default_factory=dict, compare=False)
    """Path of a file → its known deletions; None: it was never searched."""

    def subject_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of `files`, as `Store.subject_counts`."""
        assumed = is_growth(files)
        if not pc.any(assumed).as_py():
            return self._stored_counts(files)
        numbers = np.arange(files.num_rows)
        grown = assumed.to_numpy(zero_copy_only=False)
        counts = self._stored_counts(files.filter(pc.invert(assumed)))
        counts = counts.set_column(
            0,
            SUBJECT_COUNTS_OF_FILES.field("file"),
            pa.array(numbers[~grown][counts["file"].to_numpy()]),
        )
        later = growth_digests(files.filter(assumed), numbers[grown], self._mix)
        return pa.concat_tables([counts, later]).combine_chunks()

    def excess(self, remaining: RemainingMessages, spans: Spans, limit: int) -> SubjectExcess:
        """The messages of each span beyond a limit per subject, counted in this process."""
        is_stored = remaining.files is self.stored and not remaining.digests
        excess = self._excess.get(limit) if is_stored else None
        if excess is None:
            counts = remaining.subject_counts(self)
            excess = surplus(limit, counts, spans.span_of_file, len(spans))
        if is_stored:
            self._excess.clear()
            self._excess[limit] = excess
        return excess

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """The known deletions in some files; growth has none."""
        assumed = is_growth(remaining.files).to_numpy(zero_copy_only=False)
        wanted = [row for row in wanted if not assumed[row]]
        paths = remaining.files["path"].to_pylist()
        new = [row for row in wanted if paths[row] not in self._deletions]
        known = known_by_file(self.opened, remaining, new)
        self._deletions.update((paths[row], table) for row, table in zip(new, known, strict=True))
        return joined(wanted, [self._deletions[paths[row]] for row in wanted])

    def _stored_counts(self, files: pa.Table) -> pa.Table:
        """Subject digests of stored files: of neighbours from memory."""
        paths = files["path"].to_pylist()
        first = self._row_of.get(paths[0], 0) if paths else 0
        held = self._counts if self._paths[first : first + len(paths)] == paths else None
        if held is None:
            return super().subject_counts(files)
        ends = np.searchsorted(held["file"].to_numpy(), [first, first + len(paths)])
        part = held.slice(ends[0], ends[1] - ends[0])
        return part.set_column(0, held.schema.field("file"), pc.subtract(part["file"], first))

    @cached_property
    def _counts(self) -> pa.Table | None:
        """The digests of all stored files; None: they are too many for the memory."""
        lengths = subject_digests.lengths(self.opened.layout, self.stored)
        return None if sum(lengths) > HELD_BYTES else super().subject_counts(self.stored)

    @cached_property
    def _paths(self) -> list[str]:
        paths: list[str] = self.stored["path"].to_pylist()
        return paths

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {path: row for row, path in enumerate(self._paths)}

    @cached_property
    def _mix(self) -> pa.Table:
        """The messages of each subject of the stream as stored."""
        return (
            self._stored_counts(self.stored)
            .group_by("subject")
            .aggregate([("messages", "sum")])
            .rename_columns(["subject", "messages"])
            .sort_by("subject")
        )
