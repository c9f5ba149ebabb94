"""Ack logs as lines: acks published to reply subjects, and deliveries with these replies."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json, parquet

from retention.consumers.ack_subject import Malformed, parse
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.errors import UsageError
from retention.storage import files

LOG = pa.schema([("subject", pa.string()), ("data", pa.binary()), ("reply", pa.string())])
"""One row per line: an ack has its `subject` and `data` (null if empty); a delivery has the `reply` of its message."""

_TEXT = pa.schema([LOG.field("subject"), pa.field("data", pa.string()), LOG.field("reply")])
_PIECE_ROWS = 1 << 16
_BUFFER_BYTES = 1 << 20
TAIL_LINES = 1000
"""The number of lines in the digest that shows whether a log is unchanged so far."""


@dataclass(frozen=True)
class LogPart:
    """A part of a log that is read at once: whole lines of a JSON file, or a row group of a Parquet file."""

    location: str
    rows: int
    bytes: int
    begin: int = 0
    """The first byte of the part in a JSON file."""
    row_group: int | None = None
    """The number of the row group; None for JSON lines."""


@dataclass(frozen=True)
class AckLog:
    """An ack log and its parts, in order."""

    name: str
    parts: tuple[LogPart, ...]
    times: AcceptedTimes = ALL_TIMES
    """The permitted times of its messages."""

    @property
    def rows(self) -> int:
        """The number of lines."""
        return sum(part.rows for part in self.parts)

    def between(self, first: int, end: int) -> list[LogSlice]:
        """The lines `first` to `end` (exclusive), as slices of their parts."""
        slices, begin = [], 0
        for part in self.parts:
            low, high = max(first, begin), min(end, begin + part.rows)
            if low < high:
                slices.append(LogSlice(part, low - begin, high - low, low, self.times))
            begin += part.rows
        return slices


@dataclass(frozen=True)
class LogSlice:
    """Some lines of one part of a log."""

    part: LogPart
    offset: int
    """The index of the first line in the part."""
    rows: int
    row: int
    """The index of the first line in the log."""
    times: AcceptedTimes = ALL_TIMES


@dataclass(frozen=True)
class ParsedAcks:
    """The acks in some lines of a log, and the unreadable replies."""

    acks: pa.Table
    """Shape `ACKS`; `row` counts from the log's beginning."""
    malformed: tuple[Malformed, ...]
    tail: pa.Table
    """The last lines, as `last_lines`."""


def read_slice(wanted: LogSlice) -> pa.Table:
    """Read lines of a log in their order, shape `LOG`.

    A line of JSON is an object with `subject` and optionally `data` (a string) for an ack, or with `reply` for a
    delivery. A Parquet file has columns of these names, with `data` binary or string; missing columns are null.

    Raises:
        UsageError: the file cannot be read as an ack log; the message states the reason.
    """
    part = wanted.part
    try:
        if part.row_group is None:
            log = _json_lines(part).slice(wanted.offset, wanted.rows).cast(LOG)
        else:
            log = _row_group(wanted, part.row_group).cast(LOG)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(part.location, error) from error
    return log


def parse_slice(wanted: LogSlice) -> ParsedAcks:
    """Parse lines of a log into acks.

    Raises:
        UsageError: the lines cannot be read, or one of them is neither an ack nor a delivery, or has a refused time.
    """
    lines = read_slice(wanted)
    replies, bodies = replies_and_bodies(lines, wanted.part.location, wanted.row)
    acks, malformed = parse(replies, bodies)
    _refuse_times(acks, wanted)
    place = acks.schema.get_field_index("row")
    acks = acks.set_column(place, "row", pc.add(acks["row"], wanted.row))
    return ParsedAcks(acks, tuple(malformed), last_lines([lines]))


def replies_and_bodies(
    log: pa.Table, where: str = "the log", row: int = 0
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The reply of each line of a log of shape `LOG`, and its body; null for a delivery.

    Args:
        log: some lines.
        where: the file of the lines.
        row: the index of the first line in the log.

    Raises:
        UsageError: a line has both a subject and a reply, or neither, or a delivery has data.
    """
    is_ack = pc.is_valid(log["subject"])
    is_delivery = pc.is_valid(log["reply"])
    is_clear = pc.xor(is_ack, is_delivery)
    has_place = pc.or_(is_ack, pc.is_null(log["data"]))
    wrong = pc.index(pc.and_(is_clear, has_place), False).as_py()
    if wrong >= 0:
        raise UsageError(
            f"line {row + wrong + 1} of {where} is {log.slice(wrong, 1).to_pylist()[0]}; it must have either"
            " subject, and perhaps data, for an ack, or reply alone for a delivery"
        )
    bodies = pc.if_else(is_ack, pc.fill_null(log["data"], b""), None)
    return pc.coalesce(log["subject"], log["reply"]), bodies


def _refuse_times(acks: pa.Table, wanted: LogSlice) -> None:
    refused = wanted.times.first_refused(acks["ts_ns"].to_numpy())
    if refused >= 0:
        [ack] = acks.slice(refused, 1).to_pylist()
        refusal = wanted.times.refusal("the time of its message,", ack["ts_ns"], as_number=True)
        raise UsageError(
            f"line {wanted.row + ack['row'] + 1} of {wanted.part.location}, an ack of message {ack['seq']} of "
            f"{ack['stream']}: {refusal}; nothing was folded; correct the log"
        )


def tail_digest(log: AckLog, end: int) -> str:
    """The digest of the last lines before `end`; it shows whether the log up to there is unchanged.

    Raises:
        UsageError: the lines cannot be read.
    """
    slices = log.between(max(0, end - TAIL_LINES), end)
    return digest_of_tail(end, last_lines(map(read_slice, slices)))


def digest_of_tail(end: int, tail: pa.Table) -> str:
    """The digest of the last lines before `end`, given these."""
    return hashlib.sha256(repr((end, tail.to_pylist())).encode()).hexdigest()


def last_lines(parts: Iterable[pa.Table]) -> pa.Table:
    """The last `TAIL_LINES` lines of adjacent parts of a log, or all if there are fewer; shape `LOG`."""
    lines = pa.concat_tables([LOG.empty_table(), *parts])
    return lines.slice(max(0, lines.num_rows - TAIL_LINES))


def unreadable(location: str, error: Exception | str) -> UsageError:
    """The error for a file that is not an ack log."""
    return UsageError(
        f"{location} cannot be read as a log of acks ({error}); a line needs subject and data for an"
        " ack, or reply for a delivery, and nothing else"
    )


def _json_lines(part: LogPart) -> pa.Table:
    with files.open_input(part.location) as source:
        content = source.read_at(part.bytes, part.begin)
    options = json.ParseOptions(explicit_schema=_TEXT, unexpected_field_behavior="error")
    block = json.ReadOptions(block_size=max(1, len(content)), use_threads=False)
    log = json.read_json(io.BytesIO(content), parse_options=options, read_options=block)
    if log.num_rows != part.rows:
        raise unreadable(part.location, "a line is empty, or not one object")
    return log


def _row_group(wanted: LogSlice, row_group: int) -> pa.Table:
    """Lines of a row group, which is decoded in pieces, so that the other lines of a large one take no memory."""
    first, end = wanted.offset, wanted.offset + wanted.rows
    pieces, begin = [], 0
    with files.open_input(wanted.part.location) as source:
        file = parquet.ParquetFile(source, buffer_size=_BUFFER_BYTES)
        there = [name for name in LOG.names if name in file.schema_arrow.names]
        schema = pa.schema([file.schema_arrow.field(name) for name in there])
        for batch in file.iter_batches(_PIECE_ROWS, [row_group], there, use_threads=False):
            low, high = max(first - begin, 0), min(end - begin, batch.num_rows)
            if low < high:
                pieces.append(batch.slice(low, high - low))
            begin += batch.num_rows
    stored = pa.Table.from_batches(pieces, schema)
    columns = [
        stored[name] if name in there else pa.nulls(stored.num_rows, field.type)
        for name, field in zip(LOG.names, LOG, strict=True)
    ]
    return pa.table(columns, names=LOG.names)
