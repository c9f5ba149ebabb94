from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.consumers import ack_gaps
from retention.consumers.ack_events import AckLines
from retention.consumers.ack_floor import floor_of_all
from retention.consumers.ack_fold import FoldInput, FoldReport, fold, fold_log
from retention.consumers.ack_subject import ACK, ACKS, DELIVERED, NAK, NEXT, PROGRESS, TERM, UNKNOWN
from retention.consumers.state import (
    UNSEEN,
    ConsumerState,
    DeliveryPosition,
    contradictions,
    from_json,
    new_state,
)
from retention.consumers.state_codec import decode_state, encode_state
from retention.errors import RefusedError
from tests.support.consumer_model import (
    LAST_SEQ,
    Line,
    World,
    acks_of,
    lines_of,
    needs,
    worlds,
)
from tests.support.laws import law


def folded(
    world: World,
    log: tuple[Line, ...],
    cuts: tuple[int, ...],
    matching: tuple[int, ...] | None = None,
) -> ConsumerState:
    before = FoldInput(world.consumer.policy, new_state(world.consumer.start))
    if matching is not None:
        before = replace(before, matching=np.array(matching))
    for begin, end in pairwise([0, *cuts, len(log)]):
        state, _ = fold(before, lines_of(log[begin:end]), LAST_SEQ)
        assert contradictions(state, LAST_SEQ) == []
        assert decode_state(encode_state(state)) == state
        before = replace(before, state=state)
    return before.state


@law
@given(world=worlds(forged=True))
def test_what_pieces_say_is_what_the_whole_log_says(world: World) -> None:
    """A gap that no longer matters is dropped, so a later piece that mentions it lists it again."""
    before = FoldInput(world.consumer.policy, new_state(world.consumer.start))
    _, whole = fold(before, lines_of(world.log), LAST_SEQ)
    state, report = fold(before, lines_of(()), LAST_SEQ)
    for begin, end in pairwise([0, *world.cuts, len(world.log)]):
        after, more = fold(replace(before, state=state), lines_of(world.log[begin:end]), LAST_SEQ)
        report, state = report.then(state, more), after
    assert replace(report, missing=whole.missing) == whole
    assert consumer_seqs(whole.missing) <= consumer_seqs(report.missing)
    assert report.missing["first"].to_pylist() == sorted(set(report.missing["first"].to_pylist()))


def consumer_seqs(missing: pa.Table) -> set[int]:
    runs = (range(row["first"], row["last"] + 1) for row in missing.to_pylist())
    return {number for run in runs for number in run}


def acks_in(world: World) -> tuple[Line, ...]:
    return tuple(line for line in world.log if line.verb != DELIVERED)


@law
@given(world=worlds(forged=True))
def test_folding_a_whole_log_in_any_pieces_gives_the_servers_state(world: World) -> None:
    assert folded(world, world.log, world.cuts) == world.consumer.state()


@law
@given(world=worlds(forged=False))
def test_from_acks_alone_nothing_is_let_go_that_the_server_still_needs(world: World) -> None:
    policy = world.consumer.policy
    needed = needs(policy, world.consumer.state(), world.stream)
    for matching in (None, world.stream):
        state = folded(world, acks_in(world), (), matching)
        assert needed <= needs(policy, state, world.stream)


def but_for_guesses(state: ConsumerState) -> ConsumerState:
    """A state without the consumer sequence of its floor, which is a guess without a logged delivery."""
    return replace(state, ack_floor=replace(state.ack_floor, consumer_seq=0))


@law
@given(world=worlds(forged=False))
def test_acks_alone_fold_the_same_in_any_pieces(world: World) -> None:
    acks = acks_in(world)
    cuts = tuple(sorted(cut % (len(acks) + 1) for cut in world.cuts))
    assert but_for_guesses(folded(world, acks, cuts)) == but_for_guesses(folded(world, acks, ()))
    state = folded(world, acks, cuts, world.stream)
    assert but_for_guesses(state) == but_for_guesses(folded(world, acks, (), world.stream))
    assert set(state.pending["seq"].to_pylist()) <= set(world.stream)


@law
@given(world=worlds(forged=False))
def test_acks_for_every_delivery_say_as_much_as_the_server_knows(world: World) -> None:
    acks = acks_in(world)
    spoken = {line.consumer_seq for line in acks if line.seq in world.stream}
    mute = tuple(
        Line(PROGRESS, line.deliveries, line.seq, line.consumer_seq)
        for line in world.log
        if line.verb == DELIVERED and line.consumer_seq not in spoken
    )
    policy = world.consumer.policy
    state = folded(world, acks + mute, ())
    assert needs(policy, state, world.stream) == needs(policy, world.consumer.state(), world.stream)


ANY_LINES = st.lists(
    st.builds(
        Line,
        verb=st.integers(DELIVERED, UNKNOWN),
        deliveries=st.integers(0, 4),
        seq=st.integers(0, LAST_SEQ + 2),
        consumer_seq=st.integers(0, 50),
    ),
    max_size=30,
)


@law
@given(logs=st.lists(ANY_LINES, max_size=4), policy=st.sampled_from(["explicit", "all", "none"]))
def test_no_log_however_forged_makes_a_state_that_contradicts_itself_or_a_floor_fall(
    logs: list[list[Line]], policy: str
) -> None:
    before = FoldInput(policy, new_state(3))
    for lines in logs:
        state, _ = fold(before, lines_of(tuple(lines)), LAST_SEQ)
        assert contradictions(state, LAST_SEQ) == []
        assert state.ack_floor.consumer_seq >= before.state.ack_floor.consumer_seq
        assert state.ack_floor.stream_seq >= before.state.ack_floor.stream_seq
        before = replace(before, state=state)


def log(*lines: tuple[int, int, int]) -> tuple[Line, ...]:
    """First deliveries: verb, stream sequence, consumer sequence."""
    return tuple(Line(verb, 1, seq, consumer_seq) for verb, seq, consumer_seq in lines)


def explicit(*lines: tuple[int, int, int], start: int = 1) -> ConsumerState:
    return fold(FoldInput("explicit", new_state(start)), lines_of(log(*lines)), LAST_SEQ)[0]


def test_a_delivery_that_nobody_saw_is_held_until_it_is_seen() -> None:
    held = explicit((ACK, 1, 1), (ACK, 3, 3))
    assert held.pending.to_pylist() == [{"seq": 2, "consumer_seq": 2, "ts_ns": 0}]
    assert held.ack_floor == DeliveryPosition(1, 1)
    after, _ = fold(FoldInput("explicit", held), lines_of(log((ACK, 2, 2))), LAST_SEQ)
    assert after.num_ack_pending == 0
    assert after.ack_floor == DeliveryPosition(3, 3)


def test_every_message_of_a_gap_is_held_where_a_filter_leaves_open_which_it_was() -> None:
    held = explicit((ACK, 10, 1), (ACK, 20, 3))
    assert held.pending["seq"].to_pylist() == list(range(11, 20))
    after, _ = fold(FoldInput("explicit", held), lines_of(log((NAK, 15, 2))), LAST_SEQ)
    assert after.pending["seq"].to_pylist() == [15]
    assert after.ack_floor == DeliveryPosition(1, 14)


def test_only_what_the_filters_match_is_held_where_they_are_known() -> None:
    before = FoldInput("explicit", new_state(1), np.array([10, 13, 15, 20, 30]))
    held, _ = fold(before, lines_of(log((ACK, 10, 1), (ACK, 20, 4))), LAST_SEQ)
    assert held.pending["seq"].to_pylist() == [13, 15]
    assert held.pending["consumer_seq"].to_pylist() == [2, 3]


def test_a_jump_without_a_gap_holds_nothing() -> None:
    assert explicit((ACK, 10, 1), (ACK, 20, 2)) == ConsumerState(
        DeliveryPosition(2, 20), DeliveryPosition(2, 20)
    )


def test_a_term_and_an_ask_for_more_settle_and_the_rest_does_not() -> None:
    verbs = (ACK, NAK, PROGRESS, TERM, NEXT, UNKNOWN, DELIVERED)
    state = explicit(*((verb, seq, seq) for seq, verb in enumerate(verbs, start=1)))
    assert state.pending["seq"].to_pylist() == [2, 3, 6, 7]


def test_an_ack_of_all_settles_what_lies_below_and_one_from_further_back_does_nothing() -> None:
    delivered = log(*((DELIVERED, seq, seq) for seq in range(1, 7)))
    again = Line(ACK, 2, 3, 8)
    late = Line(ACK, 1, 5, 5)
    state, _ = fold(FoldInput("all", new_state(1)), lines_of((*delivered, again, late)), LAST_SEQ)
    assert state.ack_floor == DeliveryPosition(8, 3)
    assert state.pending["seq"].to_pylist() == [4, 5, 6]


def test_acks_that_stand_for_all_are_taken_one_by_one_also_where_they_go_back() -> None:
    rng = np.random.default_rng(5)
    consumer_seq, seq = rng.integers(1, 40_000, 20_000), rng.integers(1, 40_000, 20_000)
    ones = np.ones_like(seq)
    low, high = 0, 0
    for number, place in zip(consumer_seq.tolist(), seq.tolist(), strict=True):
        if number > low and place > high:
            low, high = number, place
    lines = AckLines(ones.astype(np.int8), ones, seq, consumer_seq, ones)
    assert floor_of_all(DeliveryPosition(), lines) == DeliveryPosition(low, high)


def test_an_ack_settles_also_what_had_been_given_up() -> None:
    given_up = from_json(
        {
            "delivered": {"consumer_seq": 9, "stream_seq": 5},
            "ack_floor": {"consumer_seq": 9, "stream_seq": 5},
            "redelivered": {"3": 4},
        }
    )
    late = lines_of((Line(ACK, 5, 3, 7),))
    assert fold(FoldInput("explicit", given_up), late, LAST_SEQ)[0].num_redelivered() == 0


def test_a_consumer_that_needs_no_acks_has_what_was_delivered_behind_it() -> None:
    state, _ = fold(
        FoldInput("none", new_state(1)), lines_of(log((DELIVERED, 7, 1), (ACK, 9, 2))), LAST_SEQ
    )
    assert state == ConsumerState(DeliveryPosition(2, 9), DeliveryPosition(2, 9))


def test_the_report_counts_what_was_said() -> None:
    lines = log(
        *((ACK, 1, 1), (ACK, 1, 1), (NAK, 2, 2), (UNKNOWN, 2, 2), (PROGRESS, 2, 2)),
        *((ACK, 7, 1), (ACK, LAST_SEQ + 1, 9), (ACK, 0, 3), (TERM, 6, 6)),
    )
    _, report = fold(FoldInput("explicit", new_state(1)), lines_of(lines), LAST_SEQ)
    missing = report.missing.to_pylist()
    assert replace(report, missing=UNSEEN.empty_table()) == FoldReport(
        lines=9, settling=6, naks=1, unknown_bodies=1, beyond=2, undelivered=1
    )
    assert missing == [{"first": 3, "last": 5, "after": 2, "before": 6}]


def test_a_log_is_sorted_out_by_stream_and_consumer() -> None:
    acks = pa.concat_tables(
        [
            acks_of(log((ACK, 1, 1), (ACK, 2, 2)), "ORDERS", "billing"),
            acks_of(log((ACK, 9, 9)), "ORDERS", "stranger"),
            acks_of(log((ACK, 5, 5)), "OTHER", "billing"),
            acks_of(log((ACK, 4, 3)), "ORDERS", "audit"),
            acks_of(log((ACK, 3, 3)), "ORDERS", "billing"),
        ]
    )
    consumers = {
        "billing": FoldInput("explicit", new_state(1)),
        "audit": FoldInput("all", new_state(1)),
        "silent": FoldInput("explicit", new_state(4)),
    }
    folded = fold_log(consumers, acks, stream="ORDERS", last_seq=LAST_SEQ)
    assert folded.states["billing"] == ConsumerState(DeliveryPosition(3, 3), DeliveryPosition(3, 3))
    assert folded.states["audit"].ack_floor == DeliveryPosition(3, 4)
    assert folded.states["silent"] == new_state(4)
    assert folded.unknown_consumers == {"stranger": 1}
    assert folded.other_streams == {"OTHER": 1}
    assert {name: report.lines for name, report in folded.reports.items()} == {
        "billing": 3,
        "audit": 1,
    }


def test_an_empty_log_changes_nothing() -> None:
    state = explicit((ACK, 1, 1), (NAK, 3, 3))
    folded = fold_log(
        {"c": FoldInput("explicit", state)}, ACKS.empty_table(), stream="S", last_seq=9
    )
    assert folded.states == {"c": state}
    assert folded.reports == {}


def test_a_log_that_begins_too_late_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ack_gaps, "MOST_KEPT", 3)
    acks = acks_of(log((ACK, 30, 7)), "ORDERS", "billing")
    with pytest.raises(RefusedError, match="consumer billing of ORDERS: the log lacks deliveries"):
        fold_log(
            {"billing": FoldInput("explicit", new_state(1))},
            acks,
            stream="ORDERS",
            last_seq=LAST_SEQ,
        )


def test_a_million_acks_fold_in_a_few_passes() -> None:
    count = 1_000_000
    seq = np.arange(1, count + 1)
    order = np.argsort(seq + np.random.default_rng(3).integers(0, 1000, count), kind="stable")
    ones = np.ones(count, np.int64)
    lines = AckLines(np.full(count, ACK, np.int8), ones, seq[order], seq[order], ones)
    started = time.process_time()
    state, _ = fold(FoldInput("explicit", new_state(1)), lines, count)
    assert time.process_time() - started < 10
    assert state == ConsumerState(DeliveryPosition(count, count), DeliveryPosition(count, count))
