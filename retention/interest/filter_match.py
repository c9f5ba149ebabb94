"""Messages of a stream that a consumer's filters match, from subject digests and narrow columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.ack_gaps import Numbers
from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.datafile.parquet import read_columns
from retention.rules.jetstream.interest import Interest


def matching_seqs(opened: OpenedStream, inventory: Inventory, interest: Interest) -> Numbers | None:
    """The stored sequences above a consumer's ack floor that it wants, ascending; None: it wants every one.

    Files without a subject that it wants are not opened.

    Raises:
        DamagedError: a file cannot be read.
    """
    if not interest.filters:
        return None
    open_ended = inventory.files.filter(pc.greater(inventory.files["max_seq"], interest.ack_floor))
    counts = opened.store.subject_counts(open_ended)
    matching = counts.filter(pa.array(interest.matches(counts["subject"])))
    wanted = open_ended.take(pc.unique(matching["file"]))
    parts = [np.zeros(0, dtype=np.int64)]
    for file in opened.store.data_files(wanted):
        rows, _ = read_columns(file, ("seq", "subject"))
        parts.append(rows["seq"].to_numpy()[interest.matches(rows["subject"])])
    seqs = np.concatenate(parts)
    return np.sort(seqs[seqs > interest.ack_floor])
