from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.rules.jetstream.key_view import KeyView
from tests.support.laws import law
from tests.support.worlds import World, rows_of, update, worlds

NOW = 100


def shown(world: World, policy: Policy, now_ns: int) -> list[int]:
    rows = rows_of(tuple(world.messages))
    seqs: list[int] = rows.filter(pa.array(KeyView.of(policy, now_ns).shown(rows)))[
        "seq"
    ].to_pylist()
    return seqs


@law
@given(
    worlds,
    st.none() | st.integers(1, 3),
    st.none() | st.integers(0, 20),
    st.booleans(),
    st.integers(0, 40),
)
def test_what_is_shown_is_what_a_pass_at_that_instant_leaves(
    world: World, limit: int | None, age: int | None, ttl: bool, now_ns: int
) -> None:
    policy = Policy(
        max_age_ns=age,
        expiry="head" if age is None else "each",
        max_msgs_per_subject=limit,
        discard="new",
        allow_msg_ttl=ttl,
    )
    gone = update(world.messages, policy, now_ns)
    left = [message.seq for message in world.messages if message.seq not in gone]
    assert shown(world, policy, now_ns) == left
    after = world.without(set(gone))
    assert shown(after, policy, now_ns) == left


@law
@given(worlds, st.integers(0, 20), st.integers(0, 40))
def test_a_file_that_may_not_expire_holds_nothing_expired(
    world: World, age: int, now_ns: int
) -> None:
    policy = Policy(max_age_ns=age, expiry="each", allow_msg_ttl=True)
    view = KeyView.of(policy, now_ns)
    may = view.may_expire(world.inventory.files)
    for path, flag in zip(world.inventory.files["path"].to_pylist(), may, strict=True):
        assert flag or not view.expired(world.rows(path)).any()


def test_without_limits_everything_is_shown() -> None:
    view = KeyView.of(replace(Policy(), discard="new"), NOW)
    rows = pa.table({"seq": [1, 2], "subject": ["a", "a"], "ts_ns": [1, 2], "deadline_ns": [1, 2]})
    assert view.shown(rows).all()
    assert not view.expired(rows).any()
