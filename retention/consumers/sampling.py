"""Reported acknowledgements: a sample of them, as in the server's metric (`sample_freq`)."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from retention.consumers.state import ConsumerState
from retention.core.units import format_instant

SAMPLED = pa.schema(
    [
        ("stream", pa.string()),
        ("consumer", pa.string()),
        ("consumer_seq", pa.int64()),
        ("stream_seq", pa.int64()),
        ("ack_time", pa.int64()),
        ("deliveries", pa.int64()),
        ("ts_ns", pa.int64()),
    ]
)
"""One acknowledgement a row, with the server's names: `ack_time` is the number of nanoseconds from the last delivery to
it, `deliveries` the number of deliveries so far, `ts_ns` its time in nanoseconds since the epoch."""

_TYPE = "io.nats.jetstream.metric.v1.consumer_ack"
_SUBJECT = "$JS.EVENT.METRIC.CONSUMER.ACK"
_Numbers = np.ndarray


def sample_percent(sample_freq: str) -> int:
    """Parse the percentage of acknowledgements to report, from text such as `50%`."""
    return int(sample_freq.removesuffix("%") or 0)


def is_sampled(consumer_seqs: _Numbers, share: int) -> np.ndarray:
    """Mask of the deliveries in a sample of `share` percent, by the delivery's number alone: the sample is stable."""
    mixed = consumer_seqs.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))) % np.uint64(100) < np.uint64(share)


def sampled_acks(
    state: ConsumerState,
    acks: tuple[_Numbers, _Numbers | None],
    share: int,
    now_ns: int,
    names: tuple[str, str],
) -> pa.Table:
    """The sample of some acknowledgements of single messages (server: sampleAck), shape `SAMPLED`.

    Args:
        state: the state before them; only messages pending there are reported.
        acks: stream sequences, and the consumer sequences of the acknowledged deliveries; None: of the first ones.
        share: the percentage of acknowledgements to report.
        now_ns: the time of the acknowledgements.
        names: the stream's and the consumer's.
    """
    if not share:
        return SAMPLED.empty_table()
    seqs, consumer_seqs = acks
    rows = state.pending.filter(pa.array(np.isin(state.pending["seq"].to_numpy(), seqs)))
    rows = rows.filter(pa.array(is_sampled(rows["consumer_seq"].to_numpy(), share)))
    known, counts = (state.redelivered[name].to_numpy() for name in ("seq", "count"))
    waiting = rows["seq"].to_numpy()
    again = np.append(counts, 0)[np.where(np.isin(waiting, known), known.searchsorted(waiting), -1)]
    meant = rows["consumer_seq"].to_numpy()
    if consumer_seqs is not None:
        order = np.argsort(seqs, kind="stable")
        meant = consumer_seqs[order][np.searchsorted(seqs[order], waiting)]
    stream, consumer = (np.full(len(waiting), name, object) for name in names)
    columns = [
        stream,
        consumer,
        meant,
        waiting,
        now_ns - rows["ts_ns"].to_numpy(),
        again + 1,
        np.full(len(waiting), now_ns),
    ]
    shaped = [pa.array(column, field.type) for column, field in zip(columns, SAMPLED, strict=True)]
    return pa.table(shaped, schema=SAMPLED)


def advisories(sampled: pa.Table) -> list[str]:
    """Rows of shape `SAMPLED` as lines that a stream accepts, each the message that a server would publish.

    The `id` names the delivery, so that reports of one delivery have the same `id` everywhere.
    """
    return [_advisory(**row) for row in sampled.to_pylist()]


def _advisory(*, ts_ns: int, **row: int | str) -> str:
    named = f"{row['stream']}.{row['consumer']}"
    event = {
        "type": _TYPE,
        "id": f"{named}.{row['consumer_seq']}.{row['deliveries']}",
        "timestamp": format_instant(ts_ns),
        **row,
    }
    data = json.dumps(event, ensure_ascii=False)
    line = {"subject": f"{_SUBJECT}.{named}", "data": data, "headers": {"Nats-Msg-Id": event["id"]}}
    return json.dumps(line, ensure_ascii=False)
