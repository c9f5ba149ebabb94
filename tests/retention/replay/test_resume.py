from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from retention.core.units import SECOND
from retention.replay.resume import Resumed, first_state, resume, update
from retention.rules.replay.limits import ReplayLimits
from retention.rules.replay.publishes import PUBLISHES, Expectation, Publishes
from retention.rules.replay.replay import replay
from retention.rules.replay.state import ReplayState
from retention.schemas.deadlines import NEVER
from tests.retention.rules.replay.test_replay import END, START, of_subjects, rows_of, worlds
from tests.support.laws import law


def digests(names: Sequence[str]) -> pa.Array:
    return pa.array([hashlib.blake2b(name.encode()).digest() for name in names], pa.binary())


class Lake:
    """A stream whose passes replay: what is stored, and the state of the last pass."""

    def __init__(self, limits: ReplayLimits, first_seq: int) -> None:
        self.limits = limits
        self.rows = PUBLISHES.empty_table()
        self.state: ReplayState | None = None
        self.held: set[int] = set()
        self.expectations: dict[int, Expectation] = {}
        self.first_seq = first_seq

    def append(self, publishes: Publishes) -> None:
        self.rows = pa.concat_tables([self.rows, publishes.rows])
        self.expectations |= publishes.expectations

    def apply(self, at_ns: int, limits: ReplayLimits | None = None) -> Resumed:
        """A pass at an instant, with an update of the limits if some are given."""
        stored = Publishes(self.rows, self.expectations)
        state = self.state or first_state(self.rows, self.first_seq)
        resumed = resume(stored, state, self.limits, at_ns, digests)
        if limits is not None:
            resumed = update(resumed, stored, limits, at_ns, digests)
            self.limits = limits
        seqs = resumed.gone["seq"].to_numpy()
        kept = np.isin(seqs, list(self.held))
        self.state = resumed.kept(kept)
        left = np.isin(self.rows["seq"].to_numpy(), seqs[~kept], invert=True)
        self.rows = self.rows.filter(pa.array(left))
        return resumed

    @property
    def seqs(self) -> list[int]:
        return self.rows["seq"].to_pylist()


def held_by_server(publishes: Publishes, limits: ReplayLimits) -> list[int]:
    fates = replay(publishes, limits, END)
    return fates.filter(pc.equal(fates["fate"], "kept"))["seq"].to_pylist()


@law
@given(
    worlds(),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 30)), max_size=4),
    st.sets(st.integers(1, 20), max_size=4),
)
def test_passes_at_any_instants_leave_what_one_replay_holds(
    world: tuple[Publishes, ReplayLimits, int],
    passes: list[tuple[int, int]],
    on_hold: set[int],
) -> None:
    """Appends and passes interleave in any way, so messages arrive long after instants that passes have seen."""
    publishes, limited, _ = world
    limited = replace(limited, marker_ttl_ns=None)
    first = publishes.rows["seq"][0].as_py() if publishes.rows.num_rows else 1
    lake, done = Lake(limited, first), 0
    lake.held = on_hold
    at_ns = START
    for upto, later in sorted(passes):
        lake.append(Publishes(publishes.rows.slice(done, max(upto - done, 0))))
        done = max(upto, done)
        at_ns += later * SECOND // 2
        lake.apply(at_ns)
    lake.append(Publishes(publishes.rows.slice(done)))
    lake.apply(max(END, at_ns))
    expected = held_by_server(publishes, limited)
    assert [seq for seq in lake.seqs if seq not in on_hold] == [
        seq for seq in expected if seq not in on_hold
    ]
    lake.held = set()
    lake.apply(max(END, at_ns))
    assert lake.seqs == expected


def updated(rows: pa.Table, limits: ReplayLimits, at_ns: int) -> list[int]:
    """The rows that an update leaves, walked through: head, subjects, then what is due."""
    held = rows.to_pylist()
    if not limits.refuses_new:
        while limits.max_msgs is not None and len(held) > limits.max_msgs:
            held.pop(0)
        while limits.max_bytes is not None and sum(row["size"] for row in held) > limits.max_bytes:
            held.pop(0)
    if limits.max_msgs_per_subject is not None:
        held = [
            row
            for at, row in enumerate(held)
            if sum(later["subject"] == row["subject"] for later in held[at + 1 :])
            < limits.max_msgs_per_subject
        ]
    aged = scanned(held, limits, at_ns)
    return [
        row["seq"]
        for row in held
        if row["seq"] not in aged
        and not (limits.expires and (row["deadline_ns"] or NEVER) <= at_ns)
    ]


def scanned(held: list[dict[str, Any]], limits: ReplayLimits, at_ns: int) -> set[int]:
    """The rows that age removes: those before the first young one, except `never`."""
    candidates = [row for row in held if row["deadline_ns"] != NEVER]
    age = NEVER if limits.max_age_ns is None else limits.max_age_ns
    old = itertools.takewhile(lambda row: row["ts_ns"] + age <= at_ns, candidates)
    return {row["seq"] for row in old}


@law
@given(worlds(), worlds(), st.integers(0, 30))
def test_changed_limits_act_as_an_update_at_the_instant_of_the_pass(
    world: tuple[Publishes, ReplayLimits, int],
    other: tuple[Publishes, ReplayLimits, int],
    half_seconds: int,
) -> None:
    publishes, before, _ = world
    after = replace(other[1], marker_ttl_ns=None)
    at_ns = START + half_seconds * SECOND // 2
    first = publishes.rows["seq"][0].as_py() if publishes.rows.num_rows else 1
    lake = Lake(replace(before, marker_ttl_ns=None), first)
    lake.append(publishes)
    lake.apply(at_ns)
    taken = pc.less_equal(lake.rows["seq"], lake.state.position if lake.state else 0)
    held, later = lake.rows.filter(taken), lake.rows.filter(pc.invert(taken))["seq"].to_pylist()
    lake.apply(at_ns, after)
    assert lake.seqs == updated(held, after, at_ns) + later


def test_expected_sequences_are_compared_while_every_publish_is_known() -> None:
    limits = ReplayLimits(max_msgs=9)
    publishes = of_subjects("aab")
    expects = {3: Expectation(last_seq=b"1")}
    lake = Lake(limits, 1)
    lake.append(Publishes(publishes.rows, expects))
    assert lake.apply(END).gone.to_pylist()[0]["reason"] == "wrong last sequence"
    gap = Lake(limits, 1)
    gap.append(Publishes(publishes.rows.filter(pc.not_equal(publishes.rows["seq"], 2)), expects))
    assert gap.apply(END).gone.num_rows == 0


def test_an_expected_id_is_that_of_a_message_removed_since() -> None:
    lake = Lake(ReplayLimits(max_msgs=1), 1)
    publishes = rows_of(
        {"subject": "a", "msg_id": "x"}, {"subject": "a"}, {"subject": "a", "msg_id": "y"}
    )
    lake.append(publishes)
    lake.apply(END)
    more = publishes.rows.slice(1).set_column(0, PUBLISHES.field(0), pa.array([4, 5]))
    lake.append(Publishes(more, {4: Expectation(last_id=b"y"), 5: Expectation(last_id=b"x")}))
    gone = lake.apply(END).gone
    assert gone.filter(pc.equal(gone["fate"], "refused"))["seq"].to_pylist() == [5]


def test_a_message_that_arrives_late_meets_what_has_expired_since() -> None:
    """The first message expires at 3 s and is removed at 10 s; then one of 2 s arrives, for which there was no room."""
    limits = ReplayLimits(max_msgs=1, refuses_new=True, expires=True)
    publishes = rows_of({"subject": "a", "deadline_ns": START + 3 * SECOND}, {"subject": "b"})
    lake = Lake(limits, 1)
    lake.append(Publishes(publishes.rows.slice(0, 1)))
    lake.apply(START + 10 * SECOND)
    assert lake.seqs == []
    lake.append(Publishes(publishes.rows.slice(1)))
    assert lake.apply(START + 11 * SECOND).gone["fate"].to_pylist() == ["refused"]
    assert held_by_server(publishes, limits) == lake.seqs == []
