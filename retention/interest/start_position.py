"""Start position of a new consumer: the first message that it is given (the server's selectStartingSeqNo)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config.consumer import ConsumerConfig
from retention.consumers.state import ConsumerState, new_state, with_lasts
from retention.context.context import OpenedStream
from retention.context.position import next_seq
from retention.core.inventory import Inventory
from retention.core.subjects import matching_mask
from retention.datafile.parquet import read_columns


def state_at_start(
    opened: OpenedStream, inventory: Inventory, consumer: ConsumerConfig
) -> ConsumerState:
    """The state of a consumer that is created now: it needs nothing below its start sequence.

    Raises:
        DamagedError: a file with the times or subjects that are needed cannot be read.
    """
    after = next_seq(opened, inventory)
    first_seq = int(pc.min(inventory.files["min_seq"]).as_py() or after)
    lasts: list[int] = []
    match consumer.deliver_policy:
        case "all":
            start = first_seq
        case "new":
            start = after
        case "by_start_sequence":
            start = consumer.opt_start_seq
        case "by_start_time":
            start = _first_since(opened, inventory, consumer.opt_start_time or 0, after)
        case "last":
            start = max(_last_seqs(opened, inventory, consumer), default=after - 1)
        case "last_per_subject":
            lasts = _last_seqs(opened, inventory, consumer)
            start = min(lasts, default=first_seq)
    state = new_state(min(max(start, first_seq), after))
    return with_lasts(state, lasts, after - 1) if lasts else state


def _last_seqs(opened: OpenedStream, inventory: Inventory, consumer: ConsumerConfig) -> list[int]:
    """The last sequence of each subject that a consumer wants."""
    counts = opened.store.subject_counts(inventory.files)
    if consumer.filters:
        counts = counts.filter(matching_mask(counts["subject"], consumer.filters))
    lasts = counts.group_by("subject").aggregate([("last_seq", "max")])
    seqs: list[int] = lasts["last_seq_max"].to_pylist()
    return seqs


def _first_since(opened: OpenedStream, inventory: Inventory, since_ns: int, after: int) -> int:
    """The sequence of the first message that is not older than an instant; `after` if there is none."""
    young = inventory.files.filter(pc.greater_equal(inventory.files["max_ts_ns"], since_ns))
    young = young.sort_by("min_seq")
    first = after
    for number, low in enumerate(young["min_seq"].to_pylist()):
        if low >= first:
            break
        [file] = opened.store.data_files(young.slice(number, 1))
        first = min(first, _first_young(read_columns(file, ("seq", "ts_ns"))[0], since_ns))
    return first


def _first_young(rows: pa.Table, since_ns: int) -> int:
    return int(rows["seq"].to_numpy()[np.argmax(rows["ts_ns"].to_numpy() >= since_ns)])
