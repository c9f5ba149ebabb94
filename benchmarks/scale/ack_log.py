"""A log of very many acks of several consumers, and its fold; the messages exist only in the table's log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from benchmarks.acks import NEAR, WAITING_EVERY
from benchmarks.metadata import EACH, make_stream
from benchmarks.scale.step import Step, expect
from retention import open_warehouse
from retention.context.context import OpenedStream
from retention.engines.select import EngineName
from retention.inspect.consumers import stored_consumers
from retention.interest.ack_fold import FoldedLog

MESSAGES = 10_000_000
"""Messages of the stream; each consumer acknowledges all of them."""
CONSUMERS = tuple(f"consumer-{number}" for number in range(10))
STREAM = "BIG"
_PIECE = 100_000
"""Messages per turn of a consumer; the turns of all consumers form a row group."""
_SEED = 20_250_107


@dataclass(frozen=True)
class AckLogs:
    """The acks of ten consumers of a number of messages, nearly in order; the last consumer skips one in 10,000."""

    messages: int
    """A multiple of 10,000."""

    @classmethod
    def of(cls, scale: float) -> AckLogs:
        """The log with a share of a hundred million acks."""
        return cls(max(int(MESSAGES * scale) // WAITING_EVERY, 2) * WAITING_EVERY)

    @property
    def waiting(self) -> int:
        """The number of messages not acknowledged by the last consumer, including the last message."""
        return self.messages // WAITING_EVERY

    @property
    def acks(self) -> int:
        """The number of lines of the log."""
        return self.messages * len(CONSUMERS) - self.waiting

    def make(self, place: Path) -> None:
        """Write the log, and a stream with only the table's log."""
        make_stream(place / "warehouse", self.messages // EACH)
        consumers = [
            {"durable_name": name, "ack_policy": "explicit", "max_ack_pending": -1}
            for name in CONSUMERS
        ]
        stream = {"name": STREAM, "subjects": ["big.>"], "consumers": consumers}
        settings = {"warehouse": ".", "streams": [stream]}
        (place / "warehouse" / "retention.yaml").write_text(json.dumps(settings))
        schema = pa.schema([("subject", pa.string()), ("data", pa.string())])
        with parquet.ParquetWriter(place / "acks.parquet", schema) as writer:
            for lines in self._lines():
                writer.write_table(lines.cast(schema))

    def steps(self, place: Path, engine: EngineName) -> Mapping[str, Step]:
        """The fold into new consumers."""
        stream = open_warehouse(place / "warehouse", engine=engine).stream(STREAM)
        fold = partial(stream.consumers.fold, str(place / "acks.parquet"))
        return {"fold": Step(fold, partial(self._check, stream.opened))}

    def _lines(self) -> Iterator[pa.Table]:
        random = np.random.default_rng(_SEED)
        for first in range(1, self.messages + 1, _PIECE):
            seqs = np.arange(first, min(first + _PIECE, self.messages + 1))
            of_each = []
            for name in CONSUMERS:
                near = seqs[np.argsort(seqs + random.integers(0, NEAR, len(seqs)), kind="stable")]
                acked = near[near % WAITING_EVERY > 0] if name == CONSUMERS[-1] else near
                digits = pa.array(acked).cast(pa.string())
                ahead = f"$JS.ACK.{STREAM}.{name}.1."
                of_each.append(
                    pc.binary_join_element_wise(
                        ahead, digits, ".", digits, ".1700000000000000000.0", ""
                    )
                )
            subjects = pa.concat_arrays(of_each)
            yield pa.table({"subject": subjects, "data": pa.repeat("+ACK", len(subjects))})

    def _check(self, opened: OpenedStream, logs: Sequence[FoldedLog]) -> dict[str, Any]:
        [folded] = logs
        expect("lines", folded.rows, self.acks)
        expect("replies that cannot be read", list(folded.malformed), [])
        states = {record.consumer: record.state for record in stored_consumers(opened)}
        for name in CONSUMERS:
            left_out = self.waiting if name == CONSUMERS[-1] else 0
            floor = WAITING_EVERY - 1 if left_out else self.messages
            # The deliveries of unacknowledged messages are not in the log, but later ones are.
            gaps = list(range(WAITING_EVERY, self.messages, WAITING_EVERY)) if left_out else []
            state, report = states[name], folded.consumers[name]
            expect(f"acks of {name}", report.settling, self.messages - left_out)
            expect(f"floor of {name}", state.ack_floor.stream_seq, floor)
            delivered = self.messages - bool(left_out)
            expect(f"last delivery to {name}", state.delivered.stream_seq, delivered)
            for end in ("first", "last"):
                expect(f"gaps of {name}", report.missing[end].to_pylist(), gaps)
        return {"acks": self.acks, "consumers": len(CONSUMERS), "messages": self.messages}
