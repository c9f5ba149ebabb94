from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

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
from tests.retention.rules.replay.test_replay import END, START, worlds
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
