"""Decisions by file: the same removals as by spans, and only files with some due deadlines are read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given

from retention.core.policy import Policy
from retention.core.spans import joined, spans_of
from retention.rules.jetstream.evaluate import evaluate
from retention.rules.jetstream.split_spans import split_by_file
from tests.support.laws import law
from tests.support.worlds import (
    Message,
    World,
    decide,
    instants,
    plan_of,
    policies,
    removed_by,
    update,
    worlds,
)

TTL = Policy(allow_msg_ttl=True)


def grouped(*groups: tuple[Message, ...]) -> World:
    return World(tuple((1, group) for group in groups), open_base=100)


def message(
    seq: int, deadline_ns: int | None = None, ts_ns: int = 1, subject: str = "a"
) -> Message:
    return Message(seq, subject, ts_ns, 1, never=False, deadline_ns=deadline_ns)


SHORT = tuple(message(seq, 10 + seq) for seq in (1, 4, 7))
LONG = tuple(message(seq, 30 + seq) for seq in (2, 5, 8))
LASTING = tuple(message(seq) for seq in (3, 6, 9))
THREE = grouped(SHORT, LONG, LASTING)


def asked_files(world: World, policy: Policy, as_of_ns: int) -> list[int]:
    """The inventory's numbers of the files to read."""
    decided = decide(world, policy, as_of_ns)
    return np.flatnonzero(decided.ask[decided.spans.span_of_file]).tolist()


def test_only_a_file_with_some_deadlines_due_is_asked() -> None:
    assert asked_files(THREE, TTL, 10) == []
    assert asked_files(THREE, TTL, 12) == [0]
    assert asked_files(THREE, TTL, 20) == []
    assert asked_files(THREE, TTL, 33) == [1]
    assert removed_by(THREE, plan_of(THREE, TTL, 20)) == dict.fromkeys((1, 4, 7))


def test_a_head_trim_that_ends_among_interleaved_files_asks_all_of_them() -> None:
    assert asked_files(THREE, replace(TTL, max_msgs=8), 20) == [0, 1, 2]


def test_a_subject_with_too_many_messages_asks_all_files_of_the_span() -> None:
    assert asked_files(THREE, replace(TTL, max_msgs_per_subject=8), 20) == [0, 1, 2]
    assert asked_files(THREE, replace(TTL, max_msgs_per_subject=9), 20) == []


def test_an_age_scan_that_ends_among_interleaved_files_asks_all_of_them() -> None:
    young = replace(LASTING[-1], ts_ns=15)
    mixed = grouped(SHORT, LONG, (*LASTING[:-1], young))
    assert asked_files(mixed, replace(TTL, max_age_ns=10), 20) == [0, 1, 2]
    assert asked_files(mixed, replace(TTL, max_age_ns=20), 20) == []
    assert removed_by(mixed, plan_of(mixed, replace(TTL, max_age_ns=20), 20)).keys() == {1, 4, 7}


def test_a_file_that_the_age_scan_steps_over_is_not_asked() -> None:
    lasting = tuple(replace(m, never=True) for m in LASTING)
    policy = replace(TTL, max_age_ns=10)
    assert asked_files(grouped(LONG, lasting), policy, 20) == []
    assert removed_by(
        grouped(LONG, lasting), plan_of(grouped(LONG, lasting), policy, 20)
    ).keys() == {
        2,
        5,
        8,
    }
    assert asked_files(grouped(lasting), policy, 20) == []


@law
@given(worlds, policies, instants)
def test_a_file_is_asked_for_its_deadlines_only_if_some_are_due_and_some_are_not(
    world: World, policy: Policy, as_of: int
) -> None:
    only = Policy(allow_msg_ttl=True)
    files = world.inventory.files["path"].to_pylist()
    for number in asked_files(world, only, as_of):
        deadlines = world.rows(files[number])["deadline_ns"].to_pylist()
        due = [one is not None and one <= as_of for one in deadlines]
        assert any(due)
        assert not all(due)


@law
@given(worlds, policies, instants)
def test_deciding_by_file_asks_no_more_and_keeps_the_spans(
    world: World, policy: Policy, as_of: int
) -> None:
    assume(policy.max_msgs_per_subject is None)
    files = world.inventory.files
    spans = spans_of(files)
    whole = evaluate(spans, policy, as_of)
    divided = split_by_file(whole, files, policy, as_of)
    asked = divided.ask[divided.spans.span_of_file]
    assert not (asked & ~whole.ask[spans.span_of_file]).any()
    again = joined(divided.spans)
    for name, values in vars(spans).items():
        assert np.array_equal(values, getattr(again, name)), name


@law
@given(worlds, policies, instants)
def test_interleaved_files_lose_what_one_file_would(
    world: World, policy: Policy, as_of: int
) -> None:
    one = World(((1, tuple(world.messages)),) if world.messages else (), world.open_base)
    laid, together = (plan_of(each, policy, as_of) for each in (world, one))
    assert set(removed_by(world, laid)) == set(removed_by(one, together))
    assert laid.by_rule == together.by_rule
    assert set(removed_by(world, laid)) == set(update(world.messages, policy, as_of))
