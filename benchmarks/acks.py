"""Work for consumers: a stream with three of them, a log of their acks, and a backup with all messages pending."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

import retention
from benchmarks.data import make_table, write_config
from benchmarks.tasks import STREAM, Size
from retention.formats.nats.backup import RAW_ROWS, write_backup
from tests.support.nats_oracle import state_of

CONSUMERS = ("billing", "packing", "audit")
SEGMENTS = 20
WAITING_EVERY = 10_000
"""The last consumer skips the ack of one message in this number."""
NEAR = 500
"""The maximum displacement of acks from the order of messages."""
PIECE = 1_000_000
"""Lines of a log to write at once."""
_HOUR_NS = 3_600 * 10**9


def acknowledged(messages: int, consumer: str) -> np.ndarray:
    """The acknowledged sequences of a consumer, in the order of its acks."""
    random = np.random.default_rng([20_250_105, CONSUMERS.index(consumer)])
    seqs = np.arange(1, messages + 1)
    seqs = seqs[np.argsort(seqs + random.integers(0, NEAR, messages), kind="stable")]
    return seqs[seqs % WAITING_EVERY > 0] if consumer == CONSUMERS[-1] else seqs


def replies(messages: int, consumer: str) -> pa.Array:
    """The reply subjects of its acks: first deliveries, in the order of messages."""
    seqs = pa.array(acknowledged(messages, consumer)).cast(pa.string())
    ahead = f"$JS.ACK.{STREAM}.{consumer}.1."
    return pc.binary_join_element_wise(ahead, seqs, ".", seqs, ".1700000000000000000.0", "")


def write_log(path: Path, messages: int) -> int:
    """Write the acks of all consumers, interleaved, as a log to fold; returns their number."""
    of_each = [replies(messages, consumer) for consumer in CONSUMERS]
    with parquet.ParquetWriter(
        path, pa.schema([("subject", pa.string()), ("data", pa.string())])
    ) as writer:
        for begin in range(0, messages, PIECE):
            subjects = pa.concat_arrays([each.slice(begin, PIECE) for each in of_each])
            data = pa.array(["+ACK"]).take(pa.array(np.zeros(len(subjects), dtype=np.int64)))
            writer.write_table(pa.table([subjects, data], names=["subject", "data"]))
    return sum(len(each) for each in of_each)


def make_source(directory: Path, messages: int) -> None:
    """Make a warehouse with one stream of twenty files, and configured consumers."""
    size = Size(messages // SEGMENTS, SEGMENTS, subjects=2_000, many_subjects=0)
    make_table(directory, size, size.subjects)
    configure(directory, "explicit")


def configure(warehouse: Path, ack_policy: str) -> None:
    """Give the stream interest retention and its consumers."""
    consumers = [
        {"durable_name": name, "ack_policy": ack_policy, "max_ack_pending": -1}
        for name in CONSUMERS
    ]
    write_config(warehouse, f"retention: interest, consumers: {json.dumps(consumers)}")


def messages_of(warehouse: Path) -> pa.Table:
    """The messages of a stream; shape `RAW_ROWS`."""
    found = list(retention.open_warehouse(warehouse).stream(STREAM).messages())
    return pa.concat_tables(found).select(RAW_ROWS.names).cast(RAW_ROWS)


def write_archive(path: Path, rows: pa.Table) -> dict[str, Any]:
    """Write a backup of the same messages, all just delivered to every consumer; returns its state."""
    last, now_ns = rows.num_rows, time.time_ns()
    state = {
        "delivered": {"consumer_seq": last, "stream_seq": last},
        "ack_floor": {"consumer_seq": 0, "stream_seq": 0},
        "pending": {str(seq): {"Sequence": seq, "Timestamp": now_ns} for seq in range(1, last + 1)},
    }
    consumers = {}
    for name in CONSUMERS:
        settings = {"ack_policy": "explicit", "ack_wait": _HOUR_NS, "max_ack_pending": -1}
        config = {"durable_name": name, "name": name, **settings}
        consumers[name] = {"config": config, "state": state}
    told = state_of(rows, None, "file")
    write_backup(path, told, consumers, [rows])
    return told | {"consumer_count": len(consumers)}
