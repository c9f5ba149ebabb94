"""Messages available to a consumer at one version of a stream: the next ones, their sizes and rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.delivery_state import Numbers
from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.spans import Spans, spans_of
from retention.core.subjects import matching_mask
from retention.datafile.parquet import read_columns
from retention.datafile.segment_writer import PARTITION
from retention.inspect.latest import pick_latest
from retention.inspect.messages import files_of_span
from retention.schemas.messages import FILE_COLUMNS

_NARROW = pa.schema([FILE_COLUMNS.field(name) for name in ("seq", "size")])
_AT_ONCE = 10_000


@dataclass(frozen=True)
class Upcoming:
    """One version of a stream, with the sequences read so far from its spans of files."""

    opened: OpenedStream
    inventory: Inventory
    spans: Spans
    kept: dict[tuple[int, tuple[str, ...]], pa.Table] = field(default_factory=dict)
    """Sequences and sizes of matching messages, keyed by a span's first row in the inventory and the filters."""

    @property
    def end(self) -> int:
        """The end of the sequences assigned at this version, exclusive."""
        highest = pc.max(self.inventory.files["max_seq"]).as_py() or 0
        return max(self.inventory.counters.next_seq.get(PARTITION, 1), highest + 1)

    def after(self, seq: int, filters: tuple[str, ...], count: int) -> pa.Table:
        """The next matching messages above a sequence, at most `count`, ascending: `seq` and `size`."""
        tables, missing = [_NARROW.empty_table()], count
        for span in np.flatnonzero(self.spans.max_seq > seq).tolist():
            if missing <= 0:
                break
            rows = self._matching(span, filters)
            tables.append(rows.slice(int(np.searchsorted(rows["seq"], seq, "right")), missing))
            missing -= tables[-1].num_rows
        return pa.concat_tables(tables)

    def among(self, seqs: Numbers, count: int) -> pa.Table:
        """The first of some ascending messages that exist in the stream, at most `count`: `seq` and `size`."""
        tables, missing = [_NARROW.empty_table()], count
        for start in range(0, len(seqs), _AT_ONCE):
            if missing <= 0:
                break
            piece = seqs[start : start + _AT_ONCE]
            sizes = self.sizes(piece)
            there = np.flatnonzero(sizes >= 0)[:missing]
            tables.append(pa.table([piece[there], sizes[there]], schema=_NARROW))
            missing -= len(there)
        return pa.concat_tables(tables)

    def sizes(self, seqs: Numbers) -> Numbers:
        """The sizes of messages, in bytes; -1 for one that is not in the stream."""
        rows = self._picked(np.sort(seqs), _NARROW.names)
        known = rows["seq"].to_numpy()
        if not len(known):
            return np.full(len(seqs), -1)
        at = np.minimum(np.searchsorted(known, seqs), len(known) - 1)
        return np.where(known[at] == seqs, rows["size"].to_numpy()[at], -1)

    def rows(self, seqs: Numbers) -> pa.Table:
        """The messages with these sequences, in this order, with all columns of a data file."""
        order = np.argsort(seqs)
        rows = self._picked(seqs[order], FILE_COLUMNS.names)
        return rows.take(np.argsort(order)).combine_chunks()

    def time(self, seq: int) -> int | None:
        """The time of a message, nanoseconds since the epoch; None: it is not in the stream."""
        times = self._picked(np.array([seq]), ["seq", "ts_ns"])["ts_ns"]
        return int(times[0].as_py()) if len(times) else None

    def _picked(self, seqs: Numbers, columns: list[str]) -> pa.Table:
        shape = pa.schema(
            [FILE_COLUMNS.field(name).with_nullable(nullable=True) for name in columns]
        )
        tables = pick_latest(self.opened.store, self.inventory.files, seqs, columns)
        return pa.concat_tables([shape.empty_table(), *tables])

    def _matching(self, span: int, filters: tuple[str, ...]) -> pa.Table:
        key = (int(self.spans.first_file[span]), filters)
        if key not in self.kept:
            self.kept[key] = self._read(span, filters)
        return self.kept[key]

    def _read(self, span: int, filters: tuple[str, ...]) -> pa.Table:
        if filters and not self._may_match(span, filters):
            return _NARROW.empty_table()
        columns = [*_NARROW.names, "subject"] if filters else _NARROW.names
        inside = files_of_span(self.opened.store, self.inventory.files, self.spans, span)
        rows = pa.concat_tables([read_columns(file, columns)[0] for file in inside])
        if filters:
            rows = rows.filter(matching_mask(rows["subject"], filters))
        return rows.select(_NARROW.names).sort_by("seq").cast(_NARROW)

    def _may_match(self, span: int, filters: tuple[str, ...]) -> bool:
        """Whether a message of the span may match, by its files' subject digests."""
        first, end = (int(number) for number in self.spans.first_file[span : span + 2])
        counts = self.opened.store.subject_counts(self.inventory.files.slice(first, end - first))
        return bool(pc.any(matching_mask(counts["subject"], filters)).as_py())


def upcoming(opened: OpenedStream, before: Upcoming | None = None) -> Upcoming:
    """Open the stream at its newest version; return `before` itself if nothing was committed since.

    Raises:
        DamagedError: the stream's log cannot be read.
    """
    snapshot = opened.store.snapshot()
    if before is not None and before.inventory.version == snapshot.version:
        return before
    inventory = opened.store.inventory(snapshot)
    return Upcoming(opened, inventory, spans_of(inventory.files))
