"""The messages of a stored stream as publishes: their narrow columns and headers are read, and no payload."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.config import StreamConfig
from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.read_count import ReadCount
from retention.datafile.parquet import read_columns
from retention.replay.publishes import READ_COLUMNS, publishes_of
from retention.rules.replay.publishes import PUBLISHES, Expectation, Publishes


def stored_publishes(
    opened: OpenedStream, inventory: Inventory, config: StreamConfig
) -> tuple[Publishes, ReadCount]:
    """All messages as publishes to a server with a stream of this configuration, and the reads that it took.

    The header blocks of one file at a time are in memory.

    Raises:
        DamagedError: a file is damaged.
    """
    parts, expectations = [PUBLISHES.empty_table()], dict[int, Expectation]()
    reads = ReadCount()
    for file in opened.store.data_files(inventory.files):
        stored, read = read_columns(file, READ_COLUMNS)
        part = publishes_of(stored, opened.config.storage, config)
        parts.append(part.rows)
        expectations |= part.expectations
        reads += read
    rows = pa.concat_tables(parts)
    rises = (np.diff(rows["seq"].to_numpy()) > 0).all()
    return Publishes(rows if rises else rows.sort_by("seq"), expectations), reads
