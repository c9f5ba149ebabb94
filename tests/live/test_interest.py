"""Agreement of a real server and this engine on interest retention: stored messages, releases, refusals."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream_consumers import StreamConsumers
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import RefusedError
from tests.live.test_publish import a_config, contents, our_answer, some_headers, their_answer
from tests.support.ack_program import AckProgram
from tests.support.laying import warehouse_with
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


@pytest.mark.thorough
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
    """Create a consumer on the server, and the same one here."""
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
    """The result of a pass after a change of the stream's configuration."""
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


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_events_let_go_what_the_server_lets_go(nats: Nats, tmp_path: Path, seed: int) -> None:
    both = Both(nats, tmp_path, random.Random(seed))
    for _ in range(25):
        both.chance.choice([both.publish, both.publish, both.work, both.work, both.edit])()
        both.compare()
    assert both.held > 25
    both.close()


class Both:
    """A stream on the server and the same one here, with messages, consumers, and acts on them."""

    def __init__(self, nats: Nats, folder: Path, chance: random.Random) -> None:
        self.nats, self.chance, self.held = nats, chance, 0
        settings: dict[str, Any] = {
            "subjects": ["ORDERS.>"],
            "no_ack": False,
            "retention": "interest",
        }
        nats.request("STREAM.CREATE.ORDERS", {"name": "ORDERS", "num_replicas": 1, **settings})
        warehouse = warehouse_with(folder, "parquet", NOW, **settings, unmatched="remove")
        self.stream = warehouse.stream("ORDERS")
        self.program = AckProgram(nats, "ORDERS")
        self.names: list[str] = []
        self.count = 0
        for _ in range(2):
            self.add()

    def publish(self) -> None:
        subjects = [f"ORDERS.{self.chance.choice('abc')}" for _ in range(4)]
        theirs = [self.nats.publish_one(subject, b"x")["seq"] for subject in subjects]
        lines = [json.dumps({"subject": subject, "data": "x"}) for subject in subjects]
        assert [ack.seq for ack in self.stream.publish(lines).acks()] == theirs

    def work(self) -> None:
        """A consumer fetches some messages, and settles most of them."""
        name, count = self.chance.choice(self.names), self.chance.randrange(1, 5)
        replies = self.program.take(name, count)
        consumer = self.stream.consumer(name)
        seqs = consumer.fetch(count).seqs.tolist()
        assert seqs == [int(reply.split(".")[5]) for reply in replies]
        settled = [at for at in range(len(seqs)) if self.chance.random() < 0.8]
        self.program.answer_all([replies[at] for at in settled], b"+ACK")
        consumer.ack([seqs[at] for at in settled])

    def edit(self) -> None:
        """Create, delete or refilter a consumer; one always remains."""
        match self.chance.randrange(3):
            case 0:
                self.add()
            case 1 if len(self.names) > 1:
                name = self.names.pop(self.chance.randrange(len(self.names)))
                self.nats.request(f"CONSUMER.DELETE.ORDERS.{name}", {})
                self.stream.consumers.remove(name)
            case _:
                config = self.config(self.chance.choice(self.names))
                self.ask(config)
                self.stream.consumers.update(config)

    def add(self) -> None:
        self.count += 1
        config = self.config(f"c{self.count}")
        self.ask(config)
        self.stream.consumers.add(config)
        self.names.append(config["durable_name"])

    def config(self, name: str) -> dict[str, Any]:
        filters = [f"ORDERS.{one}" for one in self.chance.choice(["a", "b", "c", "ab", "bc", "*"])]
        return {"durable_name": name, "ack_policy": "explicit", "filter_subjects": filters}

    def ask(self, config: dict[str, Any]) -> None:
        asked = {"stream_name": "ORDERS", "config": config}
        self.nats.request(f"CONSUMER.CREATE.ORDERS.{config['durable_name']}", asked)

    def compare(self) -> None:
        """Run a pass, and wait for the server's asynchronous cleanup."""
        opened = self.stream.opened
        apply_now(opened, NOW, Engines("local"), Guards())
        ours = [seq for rows in self.stream.messages() for seq in rows["seq"].to_pylist()]
        for _ in range(40):
            theirs = [one.seq for one in self.nats.survivors("ORDERS")]
            if theirs == ours:
                break
            time.sleep(0.05)
        assert ours == theirs
        self.held += len(ours)

    def close(self) -> None:
        self.nats.delete("ORDERS")


def test_whom_nobody_uses_goes_with_what_only_it_needed(nats: Nats, tmp_path: Path) -> None:
    second = 10**9
    settings: dict[str, Any] = {"subjects": ["ORDERS.>"], "no_ack": False, "retention": "interest"}
    nats.request("STREAM.CREATE.ORDERS", {"name": "ORDERS", "num_replicas": 1, **settings})
    strict: dict[str, Any] = {**settings, "unmatched": "remove"}
    early = warehouse_with(tmp_path, "parquet", NOW, **strict).stream("ORDERS")
    made: list[dict[str, Any]] = [
        {"name": "ephemeral", "inactive_threshold": second, "filter_subject": "ORDERS.a"},
        {"durable_name": "brief", "inactive_threshold": second, "filter_subject": "ORDERS.b"},
        {"durable_name": "stays", "filter_subject": "ORDERS.c"},
    ]
    for config in made:
        whole = {"ack_policy": "explicit", **config}
        asked = {"stream_name": "ORDERS", "config": whole}
        name = whole.get("durable_name") or whole["name"]
        nats.request(f"CONSUMER.CREATE.ORDERS.{name}", asked)
        early.consumers.add(whole)
    for subject in ("ORDERS.a", "ORDERS.b", "ORDERS.c"):
        nats.publish_one(subject, b"x")
        early.publish([json.dumps({"subject": subject, "data": "x"})])
    time.sleep(4)
    late = warehouse_with(tmp_path, "parquet", NOW + 4 * second, **strict).stream("ORDERS")
    report = apply_now(late.opened, NOW + 4 * second, Engines("local"), Guards())
    assert report.deleted_consumers == ["brief", "ephemeral"]
    names = nats.request("CONSUMER.NAMES.ORDERS", {})["consumers"]
    assert [one.name for one in late.consumers.list()] == names == ["stays"]
    kept = [seq for rows in late.messages() for seq in rows["seq"].to_pylist()]
    assert kept == [one.seq for one in nats.survivors("ORDERS")] == [3]
    nats.delete("ORDERS")
