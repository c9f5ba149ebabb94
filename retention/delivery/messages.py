"""Delivered messages: columns for many, an object for one, and answers to both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.ack_result import AnswerResult
from retention.consumers.delivery_state import Delivery, Mask, Numbers
from retention.core.arguments import checked_class
from retention.core.display import records_html
from retention.core.wording import counted
from retention.errors import UsageError
from retention.schemas.messages import FILE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

DELIVERED_ROWS = pa.schema(
    [
        *FILE_COLUMNS,
        pa.field("consumer_seq", pa.int64(), nullable=False),
        pa.field("deliveries", pa.int64(), nullable=False),
        pa.field("gap_ns", pa.int64()),
    ]
)
"""A delivered message: its row, the delivery's number in the consumer's count, the number of the message's deliveries
so far, and with `replay_policy: original` the nanoseconds since the message before it."""

Answer = Callable[..., AnswerResult]
_FIRST_LINE = b"NATS/1.0\r\n"
_LINE_END = b"\r\n"


@checked_class
class Messages:
    """Messages in delivery order."""

    def __init__(self, table: pa.Table, answer: Answer) -> None:
        """Store a table of shape `DELIVERED_ROWS`, and `answer(verb, seqs, consumer_seqs, detail)`."""
        self.table = table
        self._answer = answer

    @property
    def seqs(self) -> Numbers:
        """The stream sequences of the messages."""
        seqs: Numbers = self.table["seq"].to_numpy()
        return seqs

    @property
    def consumer_seqs(self) -> Numbers:
        """The number of each delivery in the consumer's count."""
        numbers: Numbers = self.table["consumer_seq"].to_numpy()
        return numbers

    def ack(self) -> AnswerResult:
        """Settle the messages; durable when this returns."""
        return self._answer_all("ack")

    def nak(self, delay: str | int = 0) -> AnswerResult:
        """Request redelivery of the messages, at once or after a delay: a duration, or nanoseconds."""
        return self._answer_all("nak", delay)

    def term(self, reason: str = "") -> AnswerResult:
        """Settle messages that cannot be processed; the reason is logged."""
        return self._answer_all("term", reason)

    def in_progress(self) -> AnswerResult:
        """Report progress: `ack_wait` restarts."""
        return self._answer_all("in_progress")

    def filter(self, mask: Mask | pa.Array | pa.ChunkedArray) -> Messages:
        """Select the messages where a mask is true.

        Raises:
            UsageError: the mask does not have exactly True or False for each message.
        """
        try:
            truths = np.asarray(mask)
        except ValueError:
            truths = np.empty(0)
        if truths.shape != (len(self),) or (len(self) and truths.dtype != np.bool_):
            raise UsageError(
                f"filter: the mask has to be True or False for each of the {len(self)} messages; nothing was done; "
                "compare a column of `table`, as in messages.filter(pc.equal(messages.table['subject'], 'orders.ada'))"
            )
        return Messages(self.table.filter(pa.array(truths, pa.bool_())), self._answer)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        return self.table.to_pandas()

    def _answer_all(self, verb: str, detail: object = None) -> AnswerResult:
        return self._answer(verb, self.seqs, self.consumer_seqs, detail)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Message]:
        for batch in self.table.to_batches(max_chunksize=1000):
            for row in batch.to_pylist():
                yield Message(row, partial(self._answer_one, row["seq"], row["consumer_seq"]))

    def _answer_one(
        self, seq: int, consumer_seq: int, verb: str, detail: object = None
    ) -> AnswerResult:
        return self._answer(verb, np.array([seq]), np.array([consumer_seq]), detail)

    def __repr__(self) -> str:
        if not len(self):
            return "no messages"
        seqs = self.seqs
        return f"{counted(len(self), 'message')}, {seqs.min()} to {seqs.max()}"

    def _repr_html_(self) -> str:
        columns = self.table.select(["seq", "subject", "ts_ns", "deliveries", "payload"])
        return records_html(repr(self), columns.to_pylist())


@checked_class
@dataclass(frozen=True)
class Message:
    """One delivered message."""

    row: dict[str, Any]
    """Columns of the message, shape `DELIVERED_ROWS`."""
    answer: Answer

    @property
    def seq(self) -> int:
        """The message's sequence in the stream."""
        return int(self.row["seq"])

    @property
    def consumer_seq(self) -> int:
        """The number of the delivery in the consumer's count."""
        return int(self.row["consumer_seq"])

    @property
    def subject(self) -> str:
        """The subject that the message was published to."""
        return str(self.row["subject"])

    @property
    def payload(self) -> bytes:
        """The content; empty with `headers_only`."""
        return self.row["payload"] or b""

    @property
    def headers(self) -> bytes:
        """The header block; empty if there is none."""
        return self.row["headers"] or b""

    @property
    def deliveries(self) -> int:
        """The number of the message's deliveries so far."""
        return int(self.row["deliveries"])

    @property
    def gap_ns(self) -> int:
        """Nanoseconds between the previous message and this one, with `replay_policy: original`; otherwise 0."""
        return int(self.row["gap_ns"] or 0)

    def ack(self) -> AnswerResult:
        """Settle the message; as `Messages.ack`."""
        return self.answer("ack")

    def nak(self, delay: str | int = 0) -> AnswerResult:
        """Request redelivery of the message; as `Messages.nak`."""
        return self.answer("nak", delay)

    def term(self, reason: str = "") -> AnswerResult:
        """Settle a message that cannot be processed; as `Messages.term`."""
        return self.answer("term", reason)

    def in_progress(self) -> AnswerResult:
        """Report progress; as `Messages.in_progress`."""
        return self.answer("in_progress")


def delivered_rows(
    rows: pa.Table, delivery: Delivery, gaps: Numbers | None, *, headers_only: bool
) -> pa.Table:
    """Turn rows of data files into delivered messages, shape `DELIVERED_ROWS`."""
    if headers_only:
        rows = _without_payload(rows)
    gap_ns = pa.nulls(len(delivery), pa.int64()) if gaps is None else pa.array(gaps)
    columns = [
        *rows.columns,
        pa.array(delivery.consumer_seq),
        pa.array(delivery.deliveries),
        gap_ns,
    ]
    return pa.table(columns, names=DELIVERED_ROWS.names).cast(DELIVERED_ROWS)


def gaps_of(times: Numbers, delivery: Delivery, before_ns: int | None) -> Numbers:
    """Compute the time from the previous message to each one, nanoseconds (server: ReplayOriginal); 0 for redeliveries.

    The times 100, 130, 190 after 90 are the gaps 10, 30, 60.

    Args:
        times: the times of the delivered messages, nanoseconds since the epoch.
        delivery: new messages in order, after redelivered ones.
        before_ns: the time of the new message before them; None: unknown.
    """
    is_new = delivery.deliveries == 1
    new = times[is_new]
    gaps = np.zeros(len(times), np.int64)
    first = new[:1] if before_ns is None else np.array([before_ns])
    gaps[is_new] = np.maximum(new - np.append(first, new)[: len(new)], 0)
    return gaps


def _without_payload(rows: pa.Table) -> pa.Table:
    """The rows with `Nats-Msg-Size` in place of their payload (server: convertToHeadersOnly)."""
    lengths = pc.fill_null(pc.binary_length(rows["payload"]), 0)
    lines = pc.binary_join_element_wise(
        pa.scalar(b"Nats-Msg-Size: "),
        lengths.cast(pa.string()).cast(pa.binary()),
        pa.scalar(_LINE_END + _LINE_END),
        b"",
    )
    blocks = pc.fill_null(rows["headers"], _FIRST_LINE + _LINE_END)
    kept = pc.binary_slice(blocks, 0, -len(_LINE_END))
    headers = pc.binary_join_element_wise(kept, lines, b"")
    payload = pa.nulls(rows.num_rows, pa.binary())
    return rows.set_column(rows.schema.get_field_index("headers"), "headers", headers).set_column(
        rows.schema.get_field_index("payload"), "payload", payload
    )
