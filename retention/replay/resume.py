"""A replay that goes on from the state of an earlier one, and the state from which the next one goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.rules.replay.fates import KEPT, REMOVED
from retention.rules.replay.limits import ReplayLimits
from retention.rules.replay.publishes import (
    ACCEPTED,
    NO_ROLLUP,
    PUBLISHES,
    SINCE_EVER_NS,
    Expectation,
    Publishes,
)
from retention.rules.replay.replay import replay_from, update_at
from retention.rules.replay.start import Start
from retention.rules.replay.state import ReplayState
from retention.schemas.replay import AHEAD, GONE, REMEMBERED, SHIFTS

Digests = Callable[[Sequence[str]], pa.Array]
"""The digests of some ids or subjects, binary."""


@dataclass(frozen=True)
class Resumed:
    """A replay from a state until an instant."""

    rows: pa.Table
    """The messages that the server held and the publishes that it answered; shape `PUBLISHES`."""
    fates: pa.Table
    """Shape `FATES`, one row for each of `rows`, in their order."""
    is_here: np.ndarray
    """A mask of the rows that are stored here."""
    before: ReplayState
    gone: pa.Table
    """The messages stored here that the server does not hold at the instant; shape `GONE`."""
    state: ReplayState
    """The state after the last publish, as if no message in `gone` were stored here any more."""

    def kept(self, mask: np.ndarray) -> ReplayState:
        """The state if some of the messages in `gone` stay here nevertheless.

        Args:
            mask: of the rows of `gone`: those that a legal hold keeps.
        """
        stays = self.gone.filter(pa.array(mask))
        expired_later = _later(stays, self.state.clock_ns)
        held = stays["seq"].filter(pa.array(expired_later)).combine_chunks()
        ahead = self.state.ahead
        ahead = ahead.filter(pc.invert(pc.is_in(ahead["seq"], value_set=held)))
        return replace(self.state, gone=stays.filter(pa.array(~expired_later)), ahead=ahead)


def first_state(stored: pa.Table, first_seq: int) -> ReplayState:
    """The state of a server before its first publish.

    Args:
        stored: all messages, shape `PUBLISHES`.
        first_seq: the sequence of its first publish, as configured.
    """
    seqs = stored["seq"].to_numpy()
    before = int(seqs[0]) - 1 if len(seqs) else first_seq - 1
    return ReplayState(before, before, is_complete=before < first_seq)


def resume(
    stored: Publishes, state: ReplayState, limits: ReplayLimits, until_ns: int, digests: Digests
) -> Resumed:
    """Go on from a state with the publishes that were stored since.

    Args:
        stored: every message that is stored here.
        state: of the server, under the same limits.
        limits: of the server.
        until_ns: nanoseconds since the epoch; later publishes are not taken, and later expiries do not happen.
        digests: of ids and subjects.
    """
    there = pc.is_in(state.gone["seq"], value_set=stored.rows["seq"].combine_chunks())
    state = replace(state, gone=state.gone.filter(there))
    held = _held(stored.rows, state, digests)
    new = stored.rows.filter(pc.greater(stored.rows["seq"], state.position))
    instants = Publishes(new).instants(0, state.clock_ns)
    taken = int(np.searchsorted(instants, until_ns, side="right"))
    new, instants = new.slice(0, taken), instants[:taken]
    rows = pa.concat_tables([held.rows, new]).combine_chunks()
    is_complete = state.is_complete and _follow(new["seq"].to_numpy(), state.position)
    expectations = stored.expectations if is_complete else {}
    start = _start(held, rows, expectations.values(), state, digests)
    fates = replay_from(Publishes(rows, expectations), limits, until_ns, start)
    clock_ns = int(instants[-1]) if taken else state.clock_ns
    answered = replace(
        _numbered(state, new, fates.slice(held.rows.num_rows), digests),
        position=int(new["seq"][-1].as_py()) if taken else state.position,
        clock_ns=clock_ns,
        is_complete=is_complete,
    )
    window_ns = limits.duplicate_window_ns
    answered = replace(answered, ids=_ids(new, fates, held, answered, window_ns, digests))
    here = np.concatenate([held.is_here, np.ones(taken, dtype=bool)])
    return _resumed(rows, fates, here, state, answered, digests)


def update(
    resumed: Resumed,
    stored: Publishes,
    limits: ReplayLimits,
    at_ns: int,
    digests: Digests,
) -> Resumed:
    """Apply an update of the configuration to what a server holds at an instant.

    Args:
        resumed: the replay until the instant, under the limits before.
        stored: every message that is stored here, as the new configuration stores it.
        limits: those of the new configuration.
        at_ns: the instant, nanoseconds since the epoch.
        digests: of ids and subjects.
    """
    stays = np.asarray(pc.equal(resumed.fates["fate"], KEPT)) & resumed.is_here
    seqs = resumed.rows["seq"].filter(pa.array(stays)).combine_chunks()
    rows = stored.rows.filter(pc.is_in(stored.rows["seq"], value_set=seqs))
    rows = _without_requests(rows)
    numbers = resumed.fates["server_seq"].filter(pa.array(stays)).to_numpy()
    start = Start(at_ns, resumed.state.last_seq, numbers)
    fates = update_at(Publishes(rows), limits, start)
    # After the instant the server has no expiry to make up for.
    state = replace(resumed.state, clock_ns=at_ns, ahead=AHEAD.empty_table())
    here = np.ones(rows.num_rows, dtype=bool)
    before = replace(state, gone=resumed.gone.cast(GONE))
    return _resumed(rows, fates, here, before, state, digests)


@dataclass(frozen=True)
class _Held:
    """The messages that a server holds."""

    rows: pa.Table
    """Shape `PUBLISHES`, ascending by `seq`."""
    server_seqs: np.ndarray
    is_here: np.ndarray
    """A mask of the rows that are stored here."""


def _held(stored: pa.Table, state: ReplayState, digests: Digests) -> _Held:
    gone = state.gone["seq"].combine_chunks()
    answered = pc.less_equal(stored["seq"], state.position)
    here = stored.filter(pc.and_(answered, pc.invert(pc.is_in(stored["seq"], value_set=gone))))
    seqs = here["seq"].to_numpy()
    numbers = seqs + _shifts_of(seqs, state.shifts)
    again = pc.is_in(state.ahead["seq"], value_set=stored["seq"].combine_chunks())
    ahead = state.ahead.filter(pc.invert(again))
    rows = pa.concat_tables([_without_requests(here), _named(ahead, stored, digests)])
    every = np.concatenate([numbers, ahead["server_seq"].to_numpy()])
    is_here = np.arange(rows.num_rows) < here.num_rows
    order = np.argsort(rows["seq"].to_numpy(), kind="stable")
    return _Held(rows.take(pa.array(order)), every[order], is_here[order])


def _without_requests(rows: pa.Table) -> pa.Table:
    """Messages that were answered already: they ask for nothing, and nothing refuses them."""
    columns = {name: rows[name] for name in PUBLISHES.names}
    count = rows.num_rows
    columns |= {
        "msg_id": pa.nulls(count, pa.string()),
        "rollup": pa.array(np.full(count, NO_ROLLUP, dtype=np.int8)),
        "early": pa.array(np.full(count, ACCEPTED, dtype=np.int32)),
        "late": pa.array(np.full(count, ACCEPTED, dtype=np.int32)),
    }
    return pa.table([columns[name] for name in PUBLISHES.names], schema=PUBLISHES)


def _named(ahead: pa.Table, stored: pa.Table, digests: Digests) -> pa.Table:
    """Expired messages with their subjects; a subject that no stored message has gets a name that none has."""
    if not ahead.num_rows:
        return PUBLISHES.empty_table()
    known = pc.unique(stored["subject"])
    names = known.take(pc.index_in(ahead["subject"], value_set=digests(known.to_pylist())))
    others = pa.array([f" {digest.hex()}" for digest in ahead["subject"].to_pylist()], pa.string())
    subjects = pc.if_else(pc.is_valid(names), names, others)
    columns = {
        **{name: ahead[name] for name in ("seq", "ts_ns", "size", "deadline_ns", "silent")},
        "subject": subjects,
    }
    missing = pa.nulls(ahead.num_rows, pa.string())
    return _without_requests(
        pa.table({name: columns.get(name, missing) for name in PUBLISHES.names})
    )


def _shifts_of(seqs: np.ndarray, shifts: pa.Table) -> np.ndarray:
    """The difference of each message's sequence on the server from that here."""
    known = np.append(0, shifts["shift"].to_numpy())
    return np.asarray(known[np.searchsorted(shifts["seq"].to_numpy(), seqs, side="right")])


def _follow(seqs: np.ndarray, position: int) -> bool:
    """Whether sequences follow a position without a gap."""
    return bool((seqs == position + 1 + np.arange(len(seqs))).all())


def _start(
    held: _Held,
    rows: pa.Table,
    expectations: Iterable[Expectation],
    state: ReplayState,
    digests: Digests,
) -> Start:
    """The state of the server, with the ids that a publish may repeat or expect by name."""
    names = pc.unique(pc.drop_null(rows["msg_id"])).to_pylist()
    at = pc.index_in(state.ids["digest"], value_set=digests(names)).to_pylist()
    there = zip(at, state.ids["seq"].to_pylist(), state.ids["ts_ns"].to_pylist(), strict=True)
    ids = {names[number]: (seq, ns) for number, seq, ns in there if number is not None}
    return Start(
        state.clock_ns,
        state.last_seq,
        held.server_seqs,
        state.shift,
        _last_id(expectations, state.last_id, digests),
        ids,
    )


def _last_id(expectations: Iterable[Expectation], digest: bytes, digests: Digests) -> str:
    """The id of the last message if a publish expects it; else a name that no publish expects."""
    if not digest:
        return ""
    expected = {each.last_id.decode(errors="replace") for each in expectations if each.last_id}
    names = sorted(expected)
    known = dict(zip(digests(names).to_pylist(), names, strict=True))
    return known.get(digest, "\n")


def _numbered(state: ReplayState, new: pa.Table, fates: pa.Table, digests: Digests) -> ReplayState:
    """The state with the server's numbers after new publishes."""
    numbers = fates["server_seq"]
    state = replace(state, shift=state.shift - numbers.null_count)
    stored = new.filter(pc.is_valid(numbers))
    if not stored.num_rows:
        return state
    last_id = stored["msg_id"][-1].as_py()
    digest = digests([last_id])[0].as_py() if last_id else b""
    return replace(state, last_seq=pc.max(numbers).as_py(), last_id=digest)


def _ids(
    new: pa.Table,
    fates: pa.Table,
    held: _Held,
    state: ReplayState,
    window_ns: int,
    digests: Digests,
) -> pa.Table:
    """The ids that the server remembers; shape `REMEMBERED`."""
    if not window_ns:
        return REMEMBERED.empty_table()
    of_new = fates.slice(held.rows.num_rows)
    since_ns = max(state.clock_ns - window_ns, SINCE_EVER_NS)
    young = pc.fill_null(pc.greater(of_new["stored_ns"], since_ns), False)  # noqa: FBT003
    mask = pc.and_(young, pc.is_valid(new["msg_id"]))
    named = new.filter(mask)
    added = pa.table(
        [
            digests(named["msg_id"].to_pylist()),
            of_new["server_seq"].filter(mask),
            of_new["stored_ns"].filter(mask),
        ],
        names=REMEMBERED.names,
    ).cast(REMEMBERED)
    old = state.ids.filter(pc.greater(state.ids["ts_ns"], since_ns))
    return pa.concat_tables([old, added]).combine_chunks()


def _resumed(
    rows: pa.Table,
    fates: pa.Table,
    here: np.ndarray,
    before: ReplayState,
    state: ReplayState,
    digests: Digests,
) -> Resumed:
    goes = np.asarray(pc.not_equal(fates["fate"], KEPT))
    columns = [fates[name] for name in GONE.names]
    gone = pa.table(columns, names=GONE.names).filter(pa.array(goes & here)).cast(GONE)
    gone = pa.concat_tables([before.gone, gone]).sort_by("seq")
    expired = _later(fates, state.clock_ns) | ~(goes | here)
    state = replace(
        state,
        ahead=_ahead(rows, fates, expired, digests),
        shifts=_shifts(rows, fates, ~goes | expired),
    )
    return Resumed(rows, fates, here, before, gone, state)


def _later(fates: pa.Table, clock_ns: int) -> np.ndarray:
    """A mask of the messages that the server removes after an instant."""
    later = pc.and_(pc.equal(fates["fate"], REMOVED), pc.greater(fates["removed_ns"], clock_ns))
    return np.asarray(pc.fill_null(later, False))  # noqa: FBT003


def _ahead(rows: pa.Table, fates: pa.Table, expired: np.ndarray, digests: Digests) -> pa.Table:
    mask = pa.array(expired)
    some = rows.filter(mask)
    columns = {name: some[name] for name in AHEAD.names if name in some.schema.names}
    columns |= {
        "server_seq": fates["server_seq"].filter(mask),
        "subject": _digests_of(some["subject"], digests),
    }
    return pa.table([columns[name] for name in AHEAD.names], names=AHEAD.names).cast(AHEAD)


def _digests_of(subjects: pa.ChunkedArray, digests: Digests) -> pa.Array:
    """The digests of subjects; a name that stands for one is turned back into it."""
    encoded = subjects.combine_chunks().dictionary_encode()
    names = encoded.dictionary.to_pylist()
    known = digests(names).to_pylist()
    each = [
        bytes.fromhex(name[1:]) if name.startswith(" ") else digest
        for name, digest in zip(names, known, strict=True)
    ]
    return pa.array(each, pa.binary()).take(encoded.indices)


def _shifts(rows: pa.Table, fates: pa.Table, holds: np.ndarray) -> pa.Table:
    mask = pa.array(holds)
    seqs = rows["seq"].filter(mask).to_numpy()
    shifts = fates["server_seq"].filter(mask).to_numpy() - seqs
    changes = np.append(True, np.diff(shifts) != 0)[: len(shifts)]
    return pa.table([seqs[changes], shifts[changes]], schema=SHIFTS)
