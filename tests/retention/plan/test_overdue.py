"""Overdue messages: counted within valid bounds, and explained by the end of the scan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.plan.overdue import Overdue, overdue_from_json
from retention.plan.overdue_count import overdue_of
from retention.rules.jetstream.whole_segments import unread_answers
from tests.support.laws import law
from tests.support.worlds import (
    Message,
    World,
    answers,
    decide,
    instants,
    policies,
    update,
    worlds,
)

FIFTY = Policy(max_age_ns=50)


def overdue(world: World, policy: Policy, as_of_ns: int = 100, *, read: bool) -> Overdue | None:
    decided = decide(world, policy, as_of_ns)
    told = answers(world, decided) if read else []
    return overdue_of(world.inventory.files, policy, as_of_ns, decided, told)


def log(*files: tuple[int, ...]) -> World:
    """Files of messages with these times, all of one segment."""
    times = [time for file in files for time in file]
    messages = [Message(seq, "a", time, 1, never=False) for seq, time in enumerate(times, start=1)]
    left = iter(messages)
    return World(tuple((1, tuple(next(left) for _ in file)) for file in files), 1)


@law
@given(worlds, policies, instants, st.booleans())
def test_bounds_contain_what_each_would_take_beyond_a_pass(
    world: World, policy: Policy, as_of: int, read: bool
) -> None:
    assume(policy.max_age_ns is not None)
    head, each = (replace(policy, expiry=how) for how in ("head", "each"))
    stays = set(update(world.messages, each, as_of)) - set(update(world.messages, head, as_of))
    found = overdue(world, head, as_of, read=read) or Overdue(0, 0)
    assert found.messages_at_most is not None
    assert found.messages_at_least <= len(stays) <= found.messages_at_most
    if found.behind_seq is not None:
        [end] = [m for m in world.messages if m.seq == found.behind_seq]
        assert end.ts_ns == found.behind_ts_ns
        assert end.ts_ns > as_of - (policy.max_age_ns or 0)
        assert all(seq > end.seq for seq in stays)
    assert overdue(world, each, as_of, read=read) is None


@law
@given(worlds, policies, instants)
def test_bounds_hold_where_rows_are_not_read_for_whole_segments(
    world: World, policy: Policy, as_of: int
) -> None:
    assume(policy.max_age_ns is not None)
    head, each = (replace(policy, expiry=how) for how in ("head", "each"))
    stays = set(update(world.messages, each, as_of)) - set(update(world.messages, head, as_of))
    decided = decide(world, head, as_of)
    known = unread_answers(decided)
    spans = {answer.span for answer in known}
    told = known + [one for one in answers(world, decided) if one.span not in spans]
    found = overdue_of(world.inventory.files, head, as_of, decided, told) or Overdue(0, 0)
    assert found.messages_at_most is not None
    assert found.messages_at_least <= len(stays) <= found.messages_at_most


def test_a_backfill_behind_one_young_message_is_counted_exactly_from_statistics() -> None:
    found = overdue(log((0, 10), (90,), (0, 10, 20), (5,)), FIFTY, read=False)
    assert found == Overdue(4, 4, behind_seq=3, behind_ts_ns=90)
    assert overdue_from_json(found.as_json()) == found


def test_a_file_of_old_and_young_messages_holds_at_least_one_that_is_old() -> None:
    found = overdue(log((90,), (0, 91, 10)), FIFTY, read=False)
    assert found == Overdue(1, 2, behind_seq=1, behind_ts_ns=90)


def test_rows_that_are_read_anyway_tell_exactly() -> None:
    mixed = log((0, 90, 10, 20, 95), (0,))
    assert overdue(mixed, FIFTY, read=False) == Overdue(1, 5)
    assert overdue(mixed, FIFTY, read=True) == Overdue(3, 3, behind_seq=2, behind_ts_ns=90)


def test_nothing_is_said_where_times_rise_with_sequences() -> None:
    for read in (False, True):
        assert overdue(log((0, 10, 60), (60, 70), (80, 90)), FIFTY, read=read) in (
            None,
            Overdue(0, 2),
        )
    assert overdue(log((0, 10, 60), (60, 70), (80, 90)), FIFTY, read=True) is None


def test_what_is_certain_of_a_part_remains_where_the_rest_is_unknown() -> None:
    assert Overdue(2, 5, 1, 90).at_least() == Overdue(2, None, 1, 90)
    assert Overdue(0, 5).at_least() is None
