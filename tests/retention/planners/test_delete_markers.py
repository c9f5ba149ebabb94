"""Markers: exactly the server's, for any files, and never for a subject with a kept message."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from retention.core.policy import Policy
from retention.rules.jetstream.delete_markers import block
from tests.support.laws import law
from tests.support.marked import marked_update, marking, marking_instants
from tests.support.worlds import NEXT_SEQ, Message, World, plan_of, removed_by, update, worlds


@law
@given(worlds, marking, marking_instants)
def test_a_pass_stores_exactly_the_markers_that_the_server_would(
    world: World, policy: Policy, as_of: int
) -> None:
    server = marked_update(world, policy, as_of)
    plan = plan_of(world, policy, as_of)
    event(f"markers: {min(plan.actions.markers.num_rows, 3)}")
    gone = removed_by(world, plan)
    own = {seq: rule for seq, rule in server.gone.items() if seq < NEXT_SEQ}
    assert set(gone) == set(own)
    assert plan.by_rule == dict(Counter(own.values()))
    assert all(rule in (None, own[seq]) for seq, rule in gone.items())
    assert plan.actions.markers.to_pylist() == [
        {"seq": m.seq, "subject": m.subject, "replaces": server.replaced[m.seq]}
        for m in server.left
        if m.seq >= NEXT_SEQ
    ]
    used = None if server.next_seq == NEXT_SEQ else (NEXT_SEQ, server.next_seq)
    assert plan.actions.sequences == used


@law
@given(worlds, marking, marking_instants)
def test_a_marker_stands_where_the_last_value_of_a_subject_died_and_nowhere_else(
    world: World, policy: Policy, as_of: int
) -> None:
    plan = plan_of(world, policy, as_of)
    gone = removed_by(world, plan)
    staying = {m.subject for m in world.messages if m.seq not in gone}
    marked = plan.actions.markers["subject"].to_pylist()
    assert not staying & set(marked)
    assert len(marked) == len(set(marked))


@law
@given(worlds, marking, marking_instants)
def test_where_none_is_refused_a_marker_stands_if_and_only_if_the_last_value_died_of_age(
    world: World, policy: Policy, as_of: int
) -> None:
    policy = replace(policy, max_msgs=None, max_bytes=None, max_msg_size=None, sealed=False)
    gone = update(world.messages, policy, as_of)
    staying = {m.subject for m in world.messages if m.seq not in gone}
    expired = [m for m in world.messages if gone.get(m.seq) in ("max_age", "msg_ttl")]
    in_turn = sorted(expired, key=lambda m: (gone[m.seq] == "msg_ttl", m.seq))
    last = {m.subject: m for m in in_turn if m.subject not in staying}
    marked = plan_of(world, policy, as_of).actions.markers["subject"].to_pylist()
    assert sorted(marked) == sorted(m.subject for m in last.values() if not m.silent)


@law
@given(worlds, marking, marking_instants)
def test_no_subject_loses_its_newest_value_to_older_ones(
    world: World, policy: Policy, as_of: int
) -> None:
    """The limit per subject never removes the newest message, and a marker is newer than every value it announces."""
    plan = plan_of(world, policy, as_of)
    newest = {m.subject: m.seq for m in world.messages}
    for seq, rule in removed_by(world, plan).items():
        assert rule != "max_msgs_per_subject" or seq not in newest.values()
    for marker in plan.actions.markers.to_pylist():
        assert newest[marker["subject"]] >= marker["replaces"]
        assert marker["seq"] > max(newest.values())


@law
@given(worlds, marking, marking_instants, st.integers(1, 14))
def test_the_same_stream_in_other_files_has_the_same_markers(
    world: World, policy: Policy, as_of: int, width: int
) -> None:
    ordered = world.messages
    cut = [tuple(ordered[at : at + width]) for at in range(0, len(ordered), width)]
    other = World(tuple((part[0].seq, part) for part in cut), world.open_base)
    one, two = (plan_of(laid, policy, as_of) for laid in (world, other))
    assert set(removed_by(world, one)) == set(removed_by(other, two))
    assert one.by_rule == two.by_rule
    assert one.actions.markers.equals(two.actions.markers)
    assert one.actions.sequences == two.actions.sequences


def test_a_marker_says_what_the_server_writes() -> None:
    for ttl_ns, text in (
        (1_900_000_000, b"1s"),
        (100_000_000_000, b"1m40s"),
        (3_605_000_000_000, b"1h0m5s"),
        (86_400_000_000_000, b"24h0m0s"),
    ):
        expected = (
            b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %b\r\nNats-Rollup: sub\r\n\r\n"
        )
        assert block(ttl_ns) == expected % text


def message(seq: int, subject: str, ts_ns: int, **more: Any) -> Message:
    return Message(seq, subject, ts_ns, 50, never=False, **more)


def one_file(*messages: Message) -> World:
    return World(((1, messages),), open_base=1)


EVERY_SECOND = Policy(allow_msg_ttl=True, subject_delete_marker_ttl_ns=10**9)


def test_the_age_scan_stores_its_markers_before_the_ttl_scan() -> None:
    old, due, young, also_old = (
        message(1, "old", 1),
        message(2, "due", 20, deadline_ns=21),
        message(3, "young", 22),
        message(4, "old", 3, deadline_ns=21),
    )
    plan = plan_of(one_file(old, due, young, also_old), replace(EVERY_SECOND, max_age_ns=10), 25)
    assert plan.actions.markers["subject"].to_pylist() == ["due", "old"]
    plan = plan_of(one_file(due, message(3, "x", 22)), replace(EVERY_SECOND, max_age_ns=10), 25)
    assert plan.actions.markers["replaces"].to_pylist() == [2]
    first = one_file(message(1, "late", 1, deadline_ns=2), message(2, "aged", 1))
    plan = plan_of(first, replace(EVERY_SECOND, max_age_ns=10), 25)
    assert plan.actions.markers["subject"].to_pylist() == ["late", "aged"]


def test_a_subject_that_both_scans_take_is_marked_where_the_second_one_ends() -> None:
    laid = one_file(
        message(1, "a", 1),
        message(2, "b", 20, deadline_ns=21),
        message(3, "c", 1, deadline_ns=21),
        message(4, "a", 20, deadline_ns=21),
    )
    plan = plan_of(laid, replace(EVERY_SECOND, max_age_ns=10), 25)
    assert plan.actions.markers["replaces"].to_pylist() == [2, 3, 4]


def test_what_ends_silently_leaves_no_marker() -> None:
    laid = one_file(message(1, "a", 1, silent=True), message(2, "b", 1))
    plan = plan_of(laid, replace(EVERY_SECOND, max_age_ns=10), 25)
    assert plan.actions.markers["subject"].to_pylist() == ["b"]


def test_a_marker_that_only_replaces_its_message_evicts_no_other() -> None:
    laid = one_file(message(1, "kept", 24), message(2, "due", 1, deadline_ns=2))
    full = replace(EVERY_SECOND, max_msgs=2)
    assert set(removed_by(laid, plan_of(laid, full, 25))) == {1, 2}
    assert set(removed_by(laid, plan_of(laid, replace(full, max_msgs_per_subject=1), 25))) == {2}
    # Room for bytes is also short, so the pass is decided event by event.
    tight = replace(full, max_msgs_per_subject=1, max_bytes=180)
    assert set(removed_by(laid, plan_of(laid, tight, 25))) == {2}


def test_markers_of_interleaved_files_stand_in_the_order_of_sequences() -> None:
    one = (message(1, "a", 1), message(3, "c", 1, deadline_ns=2))
    other = (message(2, "b", 1, deadline_ns=2), message(4, "d", 1))
    laid = World(((1, one), (1, other)), open_base=1)
    for room in (4, 9):
        plan = plan_of(laid, replace(EVERY_SECOND, max_msgs=room), 25)
        assert plan.actions.markers["subject"].to_pylist() == ["b", "c"]


def test_a_refused_marker_is_not_tried_again_in_the_same_pass() -> None:
    laid = one_file(
        message(1, "a", 1, deadline_ns=2),
        message(2, "b", 1),
        message(3, "b", 1),
        message(4, "c", 24),
    )
    full = replace(EVERY_SECOND, max_age_ns=10, max_msgs=4, discard="new")
    plan = plan_of(laid, full, 25)
    assert set(removed_by(laid, plan)) == {2, 3}
    assert plan.actions.markers["subject"].to_pylist() == ["b"]
