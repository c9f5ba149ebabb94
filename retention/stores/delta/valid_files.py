"""The files of a table with possible numbers, told from those that another program wrote with impossible ones."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile
from retention.errors import ImpossibleNumbersError
from retention.ports import Snapshot
from retention.schemas.files import LOGGED_FILES
from retention.stores.checks import inventory, number_bounds
from retention.stores.delta.commit import refuse_vectors
from retention.stores.layout import Layout
from retention.stores.sidecar.stats_cache import StatisticsCache


def partition_valid(
    layout: Layout,
    cache: StatisticsCache,
    snapshot: Snapshot,
    data_files: Callable[[pa.Table], list[DataFile]],
) -> tuple[pa.Table, pa.Table]:
    """Statistics of the files with possible numbers, and the files with impossible ones.

    Args:
        layout: the stream's layout.
        cache: its statistics cache; it gets the statistics of files that are read.
        snapshot: a version of its table.
        data_files: locates files.
    """
    refuse_vectors(layout, snapshot.handle, snapshot.files)
    inventory.refuse_nulls(layout, snapshot.files)
    bad = number_bounds.impossible(layout, snapshot.files)
    known, missing = cache.match(snapshot.files.filter(pc.invert(bad)))
    wrong = number_bounds.impossible(layout, known)
    sound = [known.filter(pc.invert(wrong))]
    unsound = [snapshot.files.filter(bad), known.filter(wrong)]
    for at in range(missing.num_rows):
        file = missing.slice(at, 1)
        try:
            described, _ = inventory.describe(data_files(file), file)
        except ImpossibleNumbersError:
            unsound.append(file)
        else:
            cache.add(described)
            sound.append(described)
    others = [table.select(LOGGED_FILES.names).cast(LOGGED_FILES) for table in unsound]
    return inventory.in_order(pa.concat_tables(sound)), pa.concat_tables(others)
