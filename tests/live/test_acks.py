"""Acks as data: a real server's state after acks, and the fold of their log."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.consumers.ack_fold import FoldInput, fold_log
from retention.consumers.ack_subject import parse
from retention.consumers.state import ConsumerState, contradictions, from_json, new_state
from retention.formats.nats.backup import read_backup
from tests.support.ack_program import AckProgram
from tests.support.nats_oracle import Message, Nats, server

pytestmark = pytest.mark.live

STREAM = "ORDERS"
LAST_SEQ = 60
HOUR = 3600 * 10**9
KINDS = ("new", "paid", "gone")
RANDOM_PROGRAMS = 8
BODIES = [b"+ACK", b"", b"-NAK", b"-NAK", b"+WPI", b"+TERM", b"nonsense"]
POLICIES = {"billing": "explicit", "packing": "explicit", "audit": "all", "tail": "none"}


REPLIES = {"nine-tokens": "", "domain-and-account": "feature_flags: {js_ack_fc_v2: true}"}
"""The server's setting for this form of replies."""


@pytest.fixture(scope="module", params=REPLIES)
def nats(request: pytest.FixtureRequest) -> Iterator[Nats]:
    with server(REPLIES[request.param]) as started:
        messages = [
            Message(seq, f"orders.{KINDS[seq % 3]}", 10**18 + seq, payload=b"x")
            for seq in range(1, LAST_SEQ + 1)
        ]
        started.restore(STREAM, {"subjects": ["orders.>"]}, messages)
        for name, policy in POLICIES.items():
            config = {"durable_name": name, "ack_policy": policy, "ack_wait": HOUR}
            if name == "billing":
                config["filter_subject"] = "orders.paid"
            asked = {"stream_name": STREAM, "config": config}
            started.request(f"CONSUMER.CREATE.{STREAM}.{name}", asked)
        yield started


@pytest.fixture(scope="module")
def program(nats: Nats) -> AckProgram:
    done = AckProgram(nats, STREAM)
    _billing(done)
    _packing(done)
    _audit(done)
    done.fetch("tail", 25)
    return done


def _billing(program: AckProgram) -> None:
    """A filter, naks (also delayed), terms, progress, invalid bodies, acks twice and by an old reply; some pending."""
    paid = program.fetch("billing", 12)
    program.answer_all([paid[3], paid[1], paid[1]], b"+ACK")
    program.answer_all([paid[0], paid[5]], b"-NAK")
    program.answer(paid[6], b'-NAK {"delay": 3600000000000}')
    program.answer(paid[7], b"+WPI")
    program.answer(paid[8], b"+TERM no such order")
    program.answer(paid[9], b"done")
    again = program.fetch("billing", 2)
    program.answer(again[0], b"-NAK")
    program.fetch("billing", 1)
    program.answer(paid[0], b"+OK")
    program.answer(paid[2], b"")


def _packing(program: AckProgram) -> None:
    """No filter, all messages settled in any order, the last one by a request for more."""
    first = program.fetch("packing", 20)
    program.answer_all(first[10:], b"+ACK")
    program.answer_all(first[9:0:-1], b"+ACK")
    following = program.next_after(first[0])
    program.answer(following, b"+ACK")
    program.fetch("packing", 1)


def _audit(program: AckProgram) -> None:
    """Acks that cover all earlier messages, by redeliveries and by late replies."""
    first = program.fetch("audit", 30)
    program.answer(first[9], b"+ACK")
    program.answer_all([first[11], first[14], first[19]], b"-NAK")
    again = program.fetch("audit", 3)
    program.answer(again[1], b"+ACK")
    program.answer(first[17], b"+ACK")
    program.answer(first[4], b"+ACK")


def folded(program: AckProgram, *, deliveries: bool) -> dict[str, ConsumerState]:
    acks, malformed = parse(*program.columns(deliveries=deliveries))
    assert malformed == []
    consumers = {name: FoldInput(policy, new_state(1)) for name, policy in POLICIES.items()}
    result = fold_log(consumers, acks, stream=STREAM, last_seq=LAST_SEQ)
    assert (result.unknown_consumers, result.other_streams) == ({}, {})
    for state in result.states.values():
        assert contradictions(state, LAST_SEQ) == []
    return dict(result.states)


def shown(state: ConsumerState) -> dict[str, Any]:
    return {
        "delivered": vars(state.delivered),
        "ack_floor": vars(state.ack_floor),
        "num_ack_pending": state.num_ack_pending,
        "num_redelivered": state.num_redelivered(),
    }


def info(nats: Nats, consumer: str) -> dict[str, Any]:
    said = nats.request(f"CONSUMER.INFO.{STREAM}.{consumer}", {})
    positions = {
        name: {count: said[name][count] for count in ("consumer_seq", "stream_seq")}
        for name in ("delivered", "ack_floor")
    }
    counts = {name: said[name] for name in ("num_ack_pending", "num_redelivered")}
    return {**positions, **counts}


@pytest.mark.parametrize("consumer", POLICIES)
def test_the_log_folds_to_what_the_server_shows(
    nats: Nats, program: AckProgram, consumer: str
) -> None:
    assert shown(folded(program, deliveries=True)[consumer]) == info(nats, consumer)


@pytest.mark.parametrize("policy", ["explicit", "all"])
@pytest.mark.parametrize("seed", range(RANDOM_PROGRAMS))
def test_what_comes_to_mind_folds_to_what_the_server_shows(
    nats: Nats, policy: str, seed: int
) -> None:
    name = f"{policy}-{seed}"
    config = {"durable_name": name, "ack_policy": policy, "ack_wait": HOUR}
    asked = {"stream_name": STREAM, "config": {**config, "filter_subject": "orders.new"}}
    nats.request(f"CONSUMER.CREATE.{STREAM}.{name}", asked)
    program = AckProgram(nats, STREAM)
    choice = random.Random(f"{name} {seed}")
    replies: list[str] = []
    for _ in range(60):
        if not replies or choice.random() < 0.3:
            replies += program.take(name, choice.randint(1, 4))
        else:
            program.answer(choice.choice(replies), choice.choice(BODIES))
    acks, _ = parse(*program.columns())
    folded = fold_log(
        {name: FoldInput(policy, new_state(1))}, acks, stream=STREAM, last_seq=LAST_SEQ
    )
    assert shown(folded.states[name]) == info(nats, name)
    nats.request(f"CONSUMER.DELETE.{STREAM}.{name}", {})


def test_the_log_folds_to_what_the_server_stores(
    nats: Nats, program: AckProgram, tmp_path: Path
) -> None:
    nats.snapshot(STREAM, tmp_path / "backup")
    states = folded(program, deliveries=True)
    consumers = read_backup(tmp_path / "backup").consumers
    assert sorted(consumers) == sorted(POLICIES)
    for name, kept in consumers.items():
        stored = from_json(kept["state"])
        assert states[name].redelivered == stored.redelivered
        numbers = ["seq", "consumer_seq"]
        assert states[name].pending.select(numbers) == stored.pending.select(numbers)


def test_acks_alone_hold_at_least_what_waits_at_the_server(
    nats: Nats, program: AckProgram, tmp_path: Path
) -> None:
    nats.snapshot(STREAM, tmp_path / "backup")
    states = folded(program, deliveries=False)
    for name in ("billing", "packing", "audit"):
        stored = from_json(read_backup(tmp_path / "backup").consumers[name]["state"])
        state = states[name]
        assert state.ack_floor <= stored.ack_floor
        waiting = set(stored.pending["seq"].to_pylist())
        held = set(state.pending["seq"].to_pylist())
        assert {seq for seq in waiting if seq <= state.delivered.stream_seq} <= held


def test_the_replies_of_the_server_are_read(
    program: AckProgram, request: pytest.FixtureRequest
) -> None:
    replies, bodies = program.columns()
    tokens = {len(reply.split(".")) for reply, _ in program.log}
    assert min(tokens) >= 11 if "domain" in request.node.name else tokens == {9}
    acks, _ = parse(replies, bodies)
    assert set(acks["stream"].to_pylist()) == {STREAM}
    assert set(acks["consumer"].to_pylist()) == set(POLICIES)
    assert acks["ts_ns"].to_pylist() == [10**18 + seq for seq in acks["seq"].to_pylist()]
