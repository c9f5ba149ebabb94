"""A real server with interest retention and ours must agree: what is stored, what events let go, what is refused."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.engines.choice import Engines
from retention.errors import RefusedError
from retention.opened import OpenedStream
from retention.passes.guards import Guards
from retention.passes.run import apply_now
from retention.stream_consumers import StreamConsumers
from tests.live.test_publish import a_config, contents, our_answer, some_headers, their_answer
from tests.support.nats_oracle import Nats, ServerError, server
from tests.support.plain_store import at, configured, opened_stream

pytestmark = pytest.mark.live
STREAMS, MESSAGES = 25, 40
KINDS = ["limits", "interest", "workqueue"]
NOW = 1_700_000_000 * 10**9
HOUR = 3600 * 10**9
FILTERS = [["a"], ["b"], ["a", "b"], ["c"], [">"], ["*"], ["d.*"]]


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


def test_a_message_that_nobody_wants_is_answered_as_the_server_answers_it(
    nats: Nats, tmp_path: Path
) -> None:
    chance = random.Random(20261122)
    unstored = compared = 0
    for number in range(STREAMS):
        name = f"P{number}"
        config = {"name": name, "subjects": [f"{name}.>"], **a_config(chance)}
        config |= {"retention": "interest", "discard": chance.choice(["old", "new"])}
        config["discard_new_per_subject"] &= config["discard"] == "new"
        if number % 2:
            keeping = {"discard": "new", "max_msgs_per_subject": -1, "allow_msg_ttl": False}
            config |= {**keeping, "discard_new_per_subject": False}
        nats.request(f"STREAM.CREATE.{name}", {**config, "num_replicas": 1})
        opened = configured(opened_stream(tmp_path / name), **config, unmatched="remove")
        for at_, filters in enumerate(chance.sample(FILTERS, chance.randrange(1, 3))):
            wanted = [f"{name}.{one}" for one in filters]
            in_both(nats, opened, name, {"durable_name": f"c{at_}", "filter_subjects": wanted})
        now = 1_700_000_000 * 10**9
        for _ in range(MESSAGES):
            now += 10**6
            message = (
                f"{name}.{chance.choice(['a', 'b', 'c', 'd.e'])}",
                "z" * chance.randrange(40),
                some_headers(chance, name, roll_ups=True),
            )
            theirs = their_answer(nats, *message)
            assert our_answer(at(opened, now), *message) == theirs, (config, message)
        if number % 2:
            kept = [(message.seq, message.subject) for message in nats.survivors(name)]
            assert contents(opened) == kept
            compared += len(kept)
        unstored += nats.info(name)["state"]["last_seq"] - len(contents(opened))
        nats.delete(name)
    assert unstored > STREAMS
    assert compared > 10


def in_both(nats: Nats, opened: OpenedStream, stream: str, config: dict[str, Any]) -> None:
    """Create a consumer at the server, and the same one here."""
    whole = {"ack_policy": "explicit", **config}
    asked = {"stream_name": stream, "config": whole}
    nats.request(f"CONSUMER.CREATE.{stream}.{config['durable_name']}", asked)
    StreamConsumers(opened).add(whole)


def their_update(nats: Nats, config: dict[str, Any]) -> tuple[int | None, str]:
    try:
        nats.update({**config, "num_replicas": 1})
    except ServerError as error:
        return error.code, error.reason
    return None, ""


def our_update(opened: OpenedStream) -> tuple[int | None, str]:
    """What a pass says, once a configuration is the stream's."""
    try:
        apply_now(opened, opened.clock(), Engines("local"), Guards())
    except RefusedError as error:
        found = re.search(r"\((?P<reason>[^()]*)[,;] server error (?P<code>\d+)\)", str(error))
        return (int(found["code"]), found["reason"]) if found else (-1, str(error))
    return None, ""


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", KINDS)
def test_a_policy_is_changed_where_the_server_changes_it(
    nats: Nats, tmp_path: Path, before: str, after: str
) -> None:
    config = {"name": "U", "subjects": ["U.>"], "retention": before}
    nats.request("STREAM.CREATE.U", {**config, "num_replicas": 1})
    opened = configured(opened_stream(tmp_path, NOW), **config)
    in_both(nats, opened, "U", {"durable_name": "c"})
    assert our_update(opened) == (None, "")
    config["retention"] = after
    assert our_update(configured(opened, **config)) == their_update(nats, config)
    nats.delete("U")


def test_limits_on_consumers_are_lowered_where_the_server_lowers_them(
    nats: Nats, tmp_path: Path
) -> None:
    chance = random.Random(5)
    codes = []
    for number in range(STREAMS):
        name = f"L{number}"
        config: dict[str, Any] = {"name": name, "subjects": [f"{name}.>"]}
        nats.request(f"STREAM.CREATE.{name}", {**config, "num_replicas": 1})
        opened = configured(opened_stream(tmp_path / name, NOW), **config)
        for consumer in "abc":
            own = {"max_ack_pending": chance.choice([-1, 0, 5, 20])}
            own["inactive_threshold"] = chance.choice([0, HOUR, 2 * HOUR])
            in_both(nats, opened, name, {"durable_name": consumer, **own})
        limits = {"max_ack_pending": chance.choice([0, 5, 20, 1000])}
        limits["inactive_threshold"] = chance.choice([0, HOUR, 2 * HOUR])
        config |= {"consumer_limits": limits, "max_consumers": chance.choice([-1, 1, 3])}
        code, reason = their_update(nats, config)
        named = (code, ", ".join(sorted(reason.partition(": ")[2].split(", "))))
        ours, said = our_update(configured(opened, **config))
        assert (ours, said.partition(": ")[2]) == named, config
        codes.append(code)
        nats.delete(name)
    assert {None, 10069} == set(codes)
