"""Fates: what became of each publish, and of each marker that the server would have written, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.rules import (
    MAX_AGE,
    MAX_BYTES,
    MAX_MSGS,
    MAX_MSGS_PER_SUBJECT,
    MSG_TTL,
    ROLLUP,
)
from retention.rules.replay.publishes import Publishes

KEPT, REMOVED, REFUSED, DUPLICATE = "kept", "removed", "refused", "duplicate"

BY_RULE = (MAX_MSGS_PER_SUBJECT, MAX_MSGS, MAX_BYTES, ROLLUP, MAX_AGE, MSG_TTL)
"""The rules by which a server removes a stored message; a removal has the index of its rule."""
PER_SUBJECT_RULE, MSGS_RULE, BYTES_RULE, ROLLUP_RULE, AGE_RULE, TTL_RULE = range(len(BY_RULE))
STAYS = -1
"""The rule of a message that is never removed, and the instant of its removal."""
IS_DUPLICATE = 1
"""The code of a duplicate: the server stores nothing, and refuses nothing."""

FATES = pa.schema(
    [
        pa.field("seq", pa.int64()),
        pa.field("server_seq", pa.int64()),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("ts_ns", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("fate", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("code", pa.int32()),
        pa.field("stored_ns", pa.int64()),
        pa.field("removed_ns", pa.int64()),
        pa.field("by_server_seq", pa.int64()),
    ]
)
"""One row per publish and per marker, in the order of a server.

`seq` is the sequence in the stream here, null for a marker; `server_seq` that on the server, null for what it did not
store. `fate` is `kept`, `removed`, `refused` or `duplicate`; `reason` the rule of a removal, or the server's words of a
refusal, with its `code`. `stored_ns` and `removed_ns` are instants, nanoseconds since the epoch. `by_server_seq` is the
message whose storing removed this one, null for expiry without a marker; for a duplicate, the original.
"""

REFUSALS = {
    10054: "message size exceeds maximum allowed",
    10060: "expected stream does not match",
    10070: "wrong last msg ID",
    10071: "wrong last sequence",
    10097: "header size exceeds maximum allowed",
    10111: "roll-up not permitted",
    10165: "invalid per-message TTL",
    10166: "per-message TTL is disabled",
    10193: "expected last subject sequence without a sequence",
    10077: "maximum messages exceeded",
    -10077: "maximum bytes exceeded",
    -20077: "maximum messages per subject exceeded",
    -1: "no stream takes the subject",
}
"""Code of a refusal → its words. Three refusals share the server's code 10077: two have a key of their own; a publish
on a foreign subject reaches no stream, and has no code."""
FULL_MSGS, FULL_BYTES, FULL_SUBJECT, FOREIGN_SUBJECT = 10077, -10077, -20077, -1
_SHARED_CODE = 10077


@dataclass(frozen=True)
class Outcome:
    """The fates of publishes and markers, as arrays."""

    codes: np.ndarray
    """int64, one for each publish: 0 if the server stored it, `IS_DUPLICATE`, or a key of `REFUSALS`."""
    originals: np.ndarray
    """int64, one for each publish: the server sequence of the message that it repeats; 0 if it is no duplicate."""
    rows: np.ndarray
    """int64, one for each stored message in the server's order: its row of the publishes; -1 for a marker."""
    places: np.ndarray
    """int64: its row; for a marker, the row of the publish that follows it."""
    seqs: np.ndarray
    """int64: server sequences."""
    stored_ns: np.ndarray
    subject_rows: np.ndarray
    """int64: a row of the publishes with the message's subject."""
    sizes: np.ndarray
    rules: np.ndarray
    """int8: indices of `BY_RULE`, or `STAYS`."""
    removed_ns: np.ndarray
    by_seqs: np.ndarray
    """int64: the server sequence of the message whose storing removed this one; 0 for none."""

    def table(self, publishes: Publishes) -> pa.Table:
        """The fates as a table of shape `FATES`."""
        stored, unstored = self._stored(publishes), self._unstored(publishes)
        fates = pa.concat_tables([stored, unstored]).cast(FATES)
        return fates.take(pa.array(self._order()))

    def _stored(self, publishes: Publishes) -> pa.Table:
        is_marker, stays = self.rows < 0, self.rules == STAYS
        table = publishes.rows
        times = table["ts_ns"].to_numpy()
        columns = {
            "seq": _taken(table["seq"].to_numpy(), self.rows, is_marker),
            "server_seq": pa.array(self.seqs),
            "subject": table["subject"].take(pa.array(self.subject_rows)),
            "ts_ns": pa.array(np.where(is_marker, self.stored_ns, times[np.maximum(self.rows, 0)])),
            "size": pa.array(self.sizes),
            "fate": _words([REMOVED, KEPT], stays.astype(np.int64)),
            "reason": _words([*BY_RULE, None], self.rules.astype(np.int64) % (len(BY_RULE) + 1)),
            "code": pa.nulls(len(self.rows), pa.int32()),
            "stored_ns": pa.array(self.stored_ns),
            "removed_ns": pa.array(self.removed_ns, mask=stays),
            "by_server_seq": pa.array(self.by_seqs, mask=self.by_seqs == 0),
        }
        return pa.table([columns[name] for name in FATES.names], names=FATES.names).cast(FATES)

    def _unstored(self, publishes: Publishes) -> pa.Table:
        rows = np.flatnonzero(self.codes)
        codes, table = self.codes[rows], publishes.rows.take(pa.array(rows))
        duplicate = codes == IS_DUPLICATE
        words = [None if code == IS_DUPLICATE else REFUSALS[code] for code in codes.tolist()]
        shared = np.isin(codes, (FULL_BYTES, FULL_SUBJECT))
        originals = self.originals[rows]
        columns = {
            "seq": table["seq"],
            "server_seq": pa.nulls(len(rows), pa.int64()),
            "subject": table["subject"],
            "ts_ns": table["ts_ns"],
            "size": table["size"],
            "fate": _words([REFUSED, DUPLICATE], duplicate.astype(np.int64)),
            "reason": pa.array(words, pa.string()),
            "code": pa.array(
                np.where(shared, _SHARED_CODE, codes), mask=duplicate | (codes == FOREIGN_SUBJECT)
            ),
            "stored_ns": pa.nulls(len(rows), pa.int64()),
            "removed_ns": pa.nulls(len(rows), pa.int64()),
            "by_server_seq": pa.array(originals, mask=originals == 0),
        }
        return pa.table([columns[name] for name in FATES.names], names=FATES.names).cast(FATES)

    def _order(self) -> np.ndarray:
        """The order of a server: by publish, and a marker before the publish that follows it."""
        unstored = np.flatnonzero(self.codes)
        places = np.concatenate([self.places, unstored])
        is_publish = np.concatenate([self.rows >= 0, np.ones(len(unstored), dtype=bool)])
        return np.lexsort((is_publish, places))


@dataclass(frozen=True)
class HeldState:
    """The content of a server at one instant, in the numbers of its stream info."""

    at_ns: int
    messages: int
    bytes: int
    first_seq: int
    """The lowest sequence held; one more than the last if none is."""
    last_seq: int
    subjects: int


def held_at(fates: pa.Table, at_ns: int) -> pa.Table:
    """The messages that the server holds at an instant, after everything that happens at it; shape `FATES`."""
    stored = pc.less_equal(fates["stored_ns"], at_ns)
    removed = pc.less_equal(fates["removed_ns"], at_ns)
    held = pc.and_(pc.fill_null(stored, False), pc.invert(pc.fill_null(removed, False)))  # noqa: FBT003
    return fates.filter(held)


def states_at(fates: pa.Table, instants: Iterable[int], first_seq: int) -> list[HeldState]:
    """The states at some instants.

    Args:
        fates: shape `FATES`.
        instants: nanoseconds since the epoch.
        first_seq: the sequence of the first message that the server assigns.
    """
    return [_state(fates, at_ns, first_seq) for at_ns in instants]


def _state(fates: pa.Table, at_ns: int, first_seq: int) -> HeldState:
    assigned = fates["server_seq"].filter(pc.less_equal(fates["stored_ns"], at_ns))
    last = pc.max(assigned).as_py() or first_seq - 1
    held = held_at(fates, at_ns)
    first = pc.min(held["server_seq"]).as_py() or last + 1
    total = pc.sum(held["size"], min_count=0).as_py()
    distinct = pc.count_distinct(held["subject"]).as_py()
    return HeldState(at_ns, held.num_rows, total, first, last, distinct)


def _taken(values: np.ndarray, rows: np.ndarray, absent: np.ndarray) -> pa.Array:
    return pa.array(values[np.where(absent, 0, rows)], mask=absent)


def _words(words: list[str | None] | list[str], places: np.ndarray) -> pa.Array:
    return pa.array(words, pa.string()).take(pa.array(places))
