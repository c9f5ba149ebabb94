from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.core.spans import Array
from retention.plan.explanation import Explanation
from retention.plan.plan import Plan
from retention.planners.explain_pass import explain_message
from retention.planners.plan_rows import PlanRows
from tests.support.laws import law
from tests.support.worlds import (
    NEXT_SEQ,
    Message,
    World,
    announced,
    digests,
    in_segments,
    instants,
    planned,
    policies,
    removed_by,
    update,
    worlds,
)


@dataclass(frozen=True)
class WorldRows:
    """The files of a world; implements `FileRows`."""

    world: World

    def read(self, files: pa.Table, columns: Sequence[str]) -> tuple[pa.Table, Array]:
        tables = [self.world.rows(path).select(columns) for path in files["path"].to_pylist()]
        rows = pa.concat_tables(tables)
        of_row = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
        order = np.argsort(rows["seq"].to_numpy(), kind="stable")
        return rows.take(pa.array(order)), of_row[order]

    def counts(self, files: pa.Table) -> pa.Table:
        return digests(self.world, files)


def plan_at(world: World, policy: Policy, as_of: int) -> Plan:
    told = announced(world, policy, as_of)
    plan = planned(world, policy, as_of, told)
    return replace(plan, cause=replace(plan.cause, refused=told.refused))


def explained(world: World, plan: Plan) -> list[Explanation]:
    rows = PlanRows(plan, WorldRows(world))
    around = [rows.find((0, message.seq)) for message in world.messages]
    return [explain_message(rows, one) for one in around if one is not None]


@law
@given(worlds, policies, instants, st.booleans())
def test_explain_agrees_with_the_plan_for_every_message(
    world: World, policy: Policy, as_of: int, whole: bool
) -> None:
    policy = in_segments(policy, whole=whole)
    plan = plan_at(world, policy, as_of)
    gone = removed_by(world, plan)
    expected = update(world.messages, policy, as_of)
    every = explained(world, plan)
    assert len(every) == len(world.messages)
    for told in every:
        assert told.goes == (told.seq in gone)
        assert told.rule == (expected[told.seq] if told.goes else None)


def one(policy: Policy, seq: int, *messages: Message) -> Explanation:
    world = World(((1, messages),), open_base=1)
    return next(e for e in explained(world, plan_at(world, policy, 100)) if e.seq == seq)


def message(seq: int, ts_ns: int = 0, *, subject: str = "a", never: bool = False) -> Message:
    return Message(seq, subject, ts_ns, size=10, never=never)


def test_a_head_trim_names_how_many_are_newer() -> None:
    told = one(Policy(max_msgs=1), 1, message(1), message(2), message(3))
    assert told.sentence == "WORLD 1 (a) is removed: max_msgs 1: 2 messages are newer than it."


def test_a_byte_trim_names_what_it_and_everything_newer_take() -> None:
    told = one(Policy(max_bytes=15), 1, message(1), message(2))
    assert "max_bytes 15 B (15 bytes): it and everything newer have 20 bytes" in told.sentence


def test_a_message_behind_a_young_one_stays_and_says_why() -> None:
    told = one(Policy(max_age_ns=50), 2, message(1, ts_ns=90), message(2, ts_ns=10))
    assert not told.goes
    assert "ended before it, at message 1, which is young enough to be kept" in told.sentence


def test_a_message_that_never_expires_says_so() -> None:
    told = one(Policy(max_age_ns=50), 1, message(1, never=True))
    assert "its Nats-TTL is never" in told.sentence


def test_a_message_that_no_limit_touches_says_so() -> None:
    assert one(Policy(), 1, message(1)).sentence == "WORLD 1 (a) is kept: no limit is set."


MARKING = Policy(allow_msg_ttl=True, subject_delete_marker_ttl_ns=10**9)


def test_the_last_of_a_subject_is_announced_by_a_marker() -> None:
    laid = World(((1, (Message(1, "a", 1, 50, never=False, deadline_ns=5),)),), open_base=1)
    [told] = explained(laid, plan_at(laid, MARKING, 25))
    assert told.goes
    assert told.sentence.endswith(f"; delete marker {NEXT_SEQ:,} announces it.")


def test_what_no_marker_can_announce_stays_and_says_so() -> None:
    laid = World(((1, (Message(1, "a", 1, 50, never=False, deadline_ns=5),)),), open_base=1)
    full = replace(MARKING, max_msgs=1, discard="new")
    [told] = explained(laid, plan_at(laid, full, 25))
    assert (told.goes, told.rule) == (False, None)
    assert "marker that would announce it does not fit" in told.sentence
