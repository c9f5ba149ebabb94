"""The number of subjects of a stream, from their digests."""

from __future__ import annotations

from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.spans import spans_of
from retention.engines.select import Engines
from retention.plan.remaining import all_remaining
from retention.planners.subject_shuffle import subject_excess


def count_subjects(opened: OpenedStream, inventory: Inventory) -> int:
    """Count subjects as a limit of one message each would.

    Very many digests are counted by tasks, of the active Spark session if there is one; none is started.

    Raises:
        DamagedError: a data file whose digest is lost cannot be read.
        StorageError: the directory of temporary files is full.
    """
    files = inventory.files
    if not files.num_rows:
        return 0
    with Engines.of_active_session() as engines:
        return subject_excess(
            opened, all_remaining(inventory), spans_of(files), 1, engines
        ).subjects
