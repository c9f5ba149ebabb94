"""Admission of an origin's messages: a refused one stalls the origin, one with a known id is skipped."""

from __future__ import annotations

from collections import deque

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.config import StreamConfig
from retention.ingest.mirror.rollup_scan import kinds_of
from retention.ingest.rollup import NONE
from retention.ingest.stream_state import UNCAPPED, Room, StreamState
from retention.ingest.validate import refuse_records, refuse_sizes
from retention.ingest.validation import MessageRefusal, Validation


class Stalled(Exception):  # noqa: N818  (never leaves mirroring)
    """Carries the origin's sequence of the first refused message, and the reason."""

    def __init__(self, seq: int, refusal: MessageRefusal) -> None:
        super().__init__(refusal.reason)
        self.seq = seq
        self.refusal = refusal


class Admission:
    """The state by which a stream decides which messages to accept, updated as they arrive (server 2.15)."""

    def __init__(self, config: StreamConfig, stored: StreamState, as_of_ns: int) -> None:
        self._config = config
        self._stored = stored
        self._since_ns = as_of_ns - config.duplicate_window_ns
        self._new_ids: set[str] = set()
        self._rolls_up = config.allow_rollup_hdrs and not config.deny_purge
        self._room = self._counted() if config.discard == "new" else None

    def admit(self, seqs: np.ndarray, rows: pa.Table) -> pa.Table:
        """The rows to store; `seqs` are their sequences at the origin.

        Raises:
            Stalled: one of them is refused.
        """
        screen = Validation(rows.num_rows)
        refuse_sizes(screen, rows, self._config)
        refuse_records(screen, rows, self._config)
        refused = screen.earliest()
        before = slice(None if refused is None else refused.row)
        new = self._new(rows)
        if self._room is not None:
            self._fill(self._room, rows, seqs, np.flatnonzero(new[before]))
        if refused is not None:
            raise Stalled(int(seqs[refused.row]), refused)
        return rows.filter(pa.array(new))

    def _new(self, rows: pa.Table) -> np.ndarray:
        """A mask of the rows that do not repeat an id received within the stream's window."""
        new = np.ones(rows.num_rows, dtype=bool)
        ids = rows["msg_id"].combine_chunks()
        if not self._config.duplicate_window_ns or ids.null_count == len(ids):
            return new
        known = self._stored.ids(pc.unique(ids.drop_null()), self._since_ns)
        for row, name in zip(
            np.flatnonzero(ids.is_valid()), ids.drop_null().to_pylist(), strict=True
        ):
            new[row] = name not in known and name not in self._new_ids
            self._new_ids.add(name)
        return new

    def _counted(self) -> Room:
        cap = self._config.max_msgs_per_subject
        if cap <= 0 and self._rolls_up:
            cap = UNCAPPED
        sizes = self._config.max_bytes > 0
        subjects = self._stored.subjects()
        return self._stored.room(cap if cap > 0 else None, subjects, sizes=sizes)

    def _fill(self, room: Room, rows: pa.Table, seqs: np.ndarray, places: np.ndarray) -> None:
        taken = rows.select(["subject", "size", "headers"]).take(pa.array(places))
        kinds = kinds_of(taken["headers"])
        columns = (taken["subject"].to_pylist(), taken["size"].to_pylist(), kinds.tolist())
        for row, subject, size, kind in zip(places.tolist(), *columns, strict=True):
            reason = self._no_room(room, subject, size, kind)
            if reason is not None:
                raise Stalled(int(seqs[row]), MessageRefusal(row, reason, 10077))
            if self._rolls_up:
                room.roll_up(subject, kind)
            room.take(subject, size)

    def _no_room(self, room: Room, subject: str, size: int, kind: int) -> str | None:
        config = self._config
        kept = room.kept.get(subject, deque())
        at_cap = 0 < config.max_msgs_per_subject <= len(kept)
        if at_cap and config.discard_new_per_subject and kind == NONE:
            return "maximum messages per subject exceeded"
        if 0 < config.max_msgs <= room.count and not at_cap:
            return "maximum messages exceeded"
        if 0 < config.max_bytes < room.bytes + size and not (at_cap and kept[0] >= size):
            return "maximum bytes exceeded"
        return None
