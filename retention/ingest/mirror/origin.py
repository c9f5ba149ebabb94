"""The origin of a mirror or a source: its identity, its position, and its messages in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.config import StreamConfig
from retention.config.nested import StreamSource
from retention.context.context import OpenedStream
from retention.context.position import locate
from retention.context.topic import refuse_topic
from retention.core.inventory import DataFile
from retention.core.seq_ranges import in_ranges, ranges_in
from retention.core.spans import Spans, spans_of
from retention.core.subjects import matching_mask
from retention.core.units import parse_instant
from retention.datafile.deadline_writer import BUFFER_BYTES
from retention.datafile.parquet import ROW_GROUP_ROWS, open_messages, read_columns, unreadable_error
from retention.datafile.row_groups import merged_by_seq
from retention.errors import RefusedError, UsageError
from retention.ingest.append import refuse_topic_of
from retention.ingest.rollup import asks_to_roll_up
from retention.schemas.messages import FILE_COLUMNS

Kind = Literal["mirror", "source"]
Wanted = Callable[[pa.Table], np.ndarray]
"""A function from a table with `seq` and `subject` to a mask of the wanted rows."""

_NARROW = ["seq", "subject"]
_COLUMNS = ("seq", "subject", "ts_ns", "headers", "payload", "origin_ts_ns")
_SHAPE = pa.schema([FILE_COLUMNS.field(name) for name in _COLUMNS])
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS_SHOWN = 8


@dataclass(frozen=True)
class MirrorOrigin:
    """A stream from which another one takes messages."""

    kind: Kind
    source: StreamSource
    opened: OpenedStream

    @property
    def filters(self) -> Sequence[str]:
        """The subject filters: a message must match at least one; empty: all messages are wanted."""
        transforms = self.source.subject_transforms
        if transforms:
            return [transform.src or ">" for transform in transforms]
        return [self.source.filter_subject] if self.source.filter_subject else []

    @property
    def selection(self) -> tuple[str, str]:
        """Filters and destinations, as the server writes them into the header of a sourced message."""
        transforms = self.source.subject_transforms
        if not transforms:
            return self.source.filter_subject or ">", ">"
        return "\f".join(self.filters), "\f".join(transform.dest or ">" for transform in transforms)

    @property
    def writer(self) -> str:
        """The writer name under which a target keeps its position; a mirror's origin never changes."""
        if self.kind == "mirror":
            return self.kind
        return f"{self.kind}/{self.source.name}/{self.selection_digest}"

    @property
    def selection_digest(self) -> str:
        """A digest that identifies filters and destinations."""
        return hashlib.sha256("\0".join(self.selection).encode()).hexdigest()[:16]

    def look(self) -> OriginView | None:
        """The origin at its newest version; None: it was never written to."""
        if not self.opened.table.exists():
            return None
        position = locate(self.opened)
        inventory = position.inventory
        return OriginView(self, inventory.table_id, inventory.files, position.next_seq - 1)


@dataclass
class MirrorTally:
    """Counts kept while messages pass."""

    looked: int = 0
    """Messages of the origin that were read, wanted or not."""


@dataclass(frozen=True)
class OriginView:
    """An origin at one version of its table."""

    origin: MirrorOrigin
    table_id: str
    files: pa.Table
    """Shape `FILE_STATS`, in order."""
    last_seq: int

    @property
    def table(self) -> str:
        """A second writer's name for the same position, which includes the identity of this table."""
        origin = self.origin
        return f"{origin.kind}/{origin.source.name}/{origin.selection_digest}/{self.table_id}"

    @property
    def identity(self) -> str:
        """Eight characters that distinguish this stream from one recreated under its name, as a server does."""
        digest = hashlib.sha256(self.table_id.encode()).digest()
        return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_DIGITS_SHOWN])

    @cached_property
    def spans(self) -> Spans:
        """The sequence ranges that whole files cover."""
        return spans_of(self.files)

    def start(self, done: int | None) -> int:
        """The first wanted sequence: after a position, or by `opt_start_seq` or `opt_start_time`."""
        source = self.origin.source
        if done is not None:
            return max(source.opt_start_seq, done + 1)
        if not source.opt_start_time:
            return max(source.opt_start_seq, 1)
        instant = parse_instant(source.opt_start_time)
        for span in np.flatnonzero(self.spans.max_ts_ns >= instant):
            parts = [read_columns(file, ("seq", "ts_ns"))[0] for file in self._files(int(span))]
            rows = pa.concat_tables(parts)
            late = rows.filter(pc.greater_equal(rows["ts_ns"], instant))
            return int(pc.min(late["seq"]).as_py())
        return self.last_seq + 1

    def first_from(self, seq: int) -> int | None:
        """The lowest existing sequence from `seq` on, as far as whole files show; None: there is none."""
        later = np.flatnonzero(self.spans.max_seq >= seq)
        return max(int(self.spans.min_seq[later[0]]), seq) if len(later) else None

    def part_end(self, first: int, part_bytes: int) -> int:
        """The last sequence of a part that begins with `first` and has about `part_bytes`, by whole files.

        Files of 4, 4, 4 and 4 bytes from `first` on, and `part_bytes` of 6: the part ends with the second file.
        """
        later = np.flatnonzero(self.spans.max_seq >= first)
        reached = np.flatnonzero(np.cumsum(self.spans.bytes[later]) >= part_bytes)
        if not len(reached) or reached[0] == len(later) - 1:
            return self.last_seq
        return int(self.spans.max_seq[later[reached[0]]])

    def rows(self, first: int, last: int, tally: MirrorTally) -> Iterator[pa.Table]:
        """The wanted messages from `first` to `last`, ascending, part of a file at a time.

        Args:
            first: the lowest sequence.
            last: the highest.
            tally: counts the messages read.

        Yields:
            Raw rows with `seq`, as `rows.complete` takes them.

        Raises:
            DamagedError: a file cannot be read.
        """
        yield from self._read(first, last, tally, _SHAPE)

    def rolls_up(self, first: int, last: int) -> bool:
        """Whether one of the wanted messages requests a roll-up."""
        shape = pa.schema([_SHAPE.field(name) for name in ("seq", "subject", "headers")])
        tables = self._read(first, last, MirrorTally(), shape)
        return any(asks_to_roll_up(table["headers"]) for table in tables)

    def _read(
        self, first: int, last: int, tally: MirrorTally, shape: pa.Schema
    ) -> Iterator[pa.Table]:
        spans = self.spans
        wanted = partial(self._wanted, first=first, last=last, tally=tally)
        for span in np.flatnonzero((spans.max_seq >= first) & (spans.min_seq <= last)):
            files = self._files(int(span))
            parts = [filtered_rows(file, shape.names, wanted) for file in files]
            yield from (part.cast(shape) for part in merged_by_seq(parts))

    def _files(self, span: int) -> list[DataFile]:
        begin, end = (int(number) for number in self.spans.first_file[span : span + 2])
        return self.origin.opened.store.data_files(self.files.slice(begin, end - begin))

    def _wanted(self, rows: pa.Table, first: int, last: int, tally: MirrorTally) -> np.ndarray:
        seqs = rows["seq"].to_numpy()
        mask: np.ndarray = (seqs >= first) & (seqs <= last)
        tally.looked += int(mask.sum())
        if self.origin.filters:
            mask &= np.asarray(matching_mask(rows["subject"], self.origin.filters), dtype=bool)
        return mask


def origins_of(
    config: StreamConfig, open_: Callable[[str], OpenedStream]
) -> Iterator[MirrorOrigin]:
    """The origins of a stream's messages, in the order of its configuration.

    Raises:
        UsageError: the stream has no origin, or an origin does not exist; or one of them is a topic.
        RefusedError: an origin is in another account or domain.
    """
    kind: Kind = "source" if config.mirror is None else "mirror"
    refuse_topic_of(config)
    sources = _sources(config)
    if not sources:
        raise UsageError(
            f"{config.name}: it has no mirror and no sources, so there is nothing to copy; name a stream that has, or "
            "add them to its configuration"
        )
    for source in sources:
        if source.external is not None:
            raise RefusedError(
                f"{config.name}: its origin {source.name} is in another account or domain, and messages can only be "
                "taken from streams of this warehouse; nothing was copied; remove external"
            )
        origin = open_(source.name)
        refuse_topic(
            origin.config,
            f"from which {config.name} cannot take: its partitions count from 0 each",
            f"remove it from the mirror or sources of {config.name}",
        )
        yield MirrorOrigin(kind, source, origin)


def in_order(streams: Sequence[StreamConfig], names: Sequence[str]) -> list[str]:
    """Streams with origins (all, if none is named) after those that they take from; configurations have no cycles."""
    taking = {stream.name: _sources(stream) for stream in streams if _sources(stream)}
    wanted = list(names) or list(taking)
    ordered: dict[str, None] = {}

    def put(name: str) -> None:
        if name not in ordered:
            for source in taking.get(name, ()):
                put(source.name)
            ordered[name] = None

    for name in wanted:
        put(name)
    return [name for name in ordered if name in wanted]


def _sources(config: StreamConfig) -> Sequence[StreamSource]:
    return config.sources if config.mirror is None else (config.mirror,)


def filtered_rows(file: DataFile, columns: Sequence[str], wanted: Wanted) -> Iterator[pa.Table]:
    """The wanted rows of a file, ascending by `seq`, in tables of at most about `BUFFER_BYTES`.

    Raises:
        DamagedError: the file cannot be read to its end.
    """
    opened = open_messages(file)
    try:
        if _rises(opened):
            yield from _by_group(file, opened, columns, wanted)
            return
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error
    rows, _ = read_columns(file, columns)
    yield rows.filter(pa.array(wanted(rows)))


def _rises(opened: pq.ParquetFile) -> bool:
    """Whether the rows are in sequence order; other writers may store them in another."""
    seqs = opened.read(columns=["seq"])["seq"].to_numpy()
    return bool((np.diff(seqs) > 0).all())


def _by_group(
    file: DataFile, opened: pq.ParquetFile, columns: Sequence[str], wanted: Wanted
) -> Iterator[pa.Table]:
    for group in range(opened.metadata.num_row_groups):
        narrow = opened.read_row_group(group, columns=_NARROW)
        mask = wanted(narrow) & ~in_ranges(narrow["seq"].to_numpy(), ranges_in(file.hidden))
        if not mask.any():
            continue
        metadata = opened.metadata.row_group(group)
        fitting = BUFFER_BYTES * metadata.num_rows // max(metadata.total_byte_size, 1)
        rows, at = min(max(fitting, 1), ROW_GROUP_ROWS), 0
        for batch in opened.iter_batches(rows, row_groups=[group], columns=list(columns)):
            here = mask[at : at + batch.num_rows]
            at += batch.num_rows
            if here.any():
                yield pa.Table.from_batches([batch]).select(columns).filter(pa.array(here))
