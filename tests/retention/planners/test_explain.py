from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.core.spans import joined
from retention.plan.remaining import untouched
from retention.planners.explain import Explanation, Found, explanation
from retention.planners.retention import Planning
from tests.support.laws import law
from tests.support.worlds import (
    NEXT_SEQ,
    Message,
    World,
    announced,
    instants,
    planned,
    policies,
    removed_by,
    rows_of,
    update,
    worlds,
)


def look(world: World, policy: Policy, as_of: int) -> Planning:
    told = announced(world, policy, as_of)
    plan = planned(world, policy, as_of, told)
    return Planning(
        untouched(world.inventory), told.decided, list(told.answers), plan, refused=told.refused
    )


def explained(world: World, seen: Planning) -> list[Explanation]:
    return [explanation(seen, found) for found in _every_message(world, seen)]


def _every_message(world: World, seen: Planning) -> list[Found]:
    found = []
    spans = joined(seen.decided.spans)
    paths = world.inventory.files["path"].to_pylist()
    file_of = {
        seq: number
        for number, path in enumerate(paths)
        for seq in world.rows(path)["seq"].to_pylist()
    }
    for span in range(len(spans)):
        low, high = spans.min_seq[span], spans.max_seq[span]
        inside = [m for m in world.messages if low <= m.seq <= high]
        files = np.array([file_of[m.seq] for m in inside])
        later = [m.subject for m in world.messages if m.seq > high]
        found += [
            Found(span, row, rows_of(tuple(inside)), files, later.count(m.subject))
            for row, m in enumerate(inside)
        ]
    return found


@law
@given(worlds, policies, instants, st.booleans())
def test_explain_agrees_with_the_plan_for_every_message(
    world: World, policy: Policy, as_of: int, whole: bool
) -> None:
    policy = replace(policy, whole_segments=whole)
    seen = look(world, policy, as_of)
    gone = removed_by(world, seen.plan)
    expected = update(world.messages, policy, as_of)
    for told in explained(world, seen):
        assert told.goes == (told.seq in gone)
        assert told.rule == (expected[told.seq] if told.goes else None)


def one(policy: Policy, seq: int, *messages: Message) -> Explanation:
    world = World(((1, messages),), open_base=1)
    return next(e for e in explained(world, look(world, policy, 100)) if e.seq == seq)


def message(seq: int, ts_ns: int = 0, *, subject: str = "a", never: bool = False) -> Message:
    return Message(seq, subject, ts_ns, size=10, never=never)


def test_a_head_trim_names_how_many_are_newer() -> None:
    told = one(Policy(max_msgs=1), 1, message(1), message(2), message(3))
    assert told.sentence == "WORLD 1 (a) goes: max_msgs 1: 2 messages are newer than it."


def test_a_byte_trim_names_what_it_and_everything_newer_take() -> None:
    told = one(Policy(max_bytes=15), 1, message(1), message(2))
    assert "max_bytes 15 B (15 bytes): it and everything newer take 20 bytes" in told.sentence


def test_a_message_behind_a_young_one_stays_and_says_why() -> None:
    told = one(Policy(max_age_ns=50), 2, message(1, ts_ns=90), message(2, ts_ns=10))
    assert not told.goes
    assert "ended before it, at message 1, which is young enough to stay" in told.sentence


def test_a_message_that_never_expires_says_so() -> None:
    told = one(Policy(max_age_ns=50), 1, message(1, never=True))
    assert "its Nats-TTL is never" in told.sentence


def test_a_message_that_no_limit_touches_says_so() -> None:
    assert one(Policy(), 1, message(1)).sentence == "WORLD 1 (a) stays: no limit is set."


MARKING = Policy(allow_msg_ttl=True, subject_delete_marker_ttl_ns=10**9)


def test_the_last_of_a_subject_is_announced_by_a_marker() -> None:
    laid = World(((1, (Message(1, "a", 1, 50, never=False, deadline_ns=5),)),), open_base=1)
    [told] = explained(laid, look(laid, MARKING, 25))
    assert told.goes
    assert told.sentence.endswith(f"; delete marker {NEXT_SEQ:,} announces it.")


def test_what_no_marker_can_announce_stays_and_says_so() -> None:
    laid = World(((1, (Message(1, "a", 1, 50, never=False, deadline_ns=5),)),), open_base=1)
    full = replace(MARKING, max_msgs=1, discard="new")
    [told] = explained(laid, look(laid, full, 25))
    assert (told.goes, told.rule) == (False, None)
    assert "marker that would announce it does not fit" in told.sentence
