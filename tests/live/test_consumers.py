"""Agreement of a real server and our configuration of consumers: accepted ones, normal forms, and refusals."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from retention.config import parse_stream
from retention.config.checks.consumer import consumer_refusals
from retention.config.checks.consumer_updates import updated_consumer
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.consumers.subscription import Subscription, find_stream
from retention.errors import UsageError
from tests.support.misconfigured import Json, Row, rows
from tests.support.nats_oracle import Nats, ServerError, server

pytestmark = pytest.mark.live

ROWS = list(rows())
REQUESTS = int(os.environ.get("RETENTION_LIVE_STREAMS", "25")) * 10
SECOND = 1_000_000_000
EXPLICIT = {"ack_policy": "explicit"}
STREAM: Json = {"name": "S", "subjects": ["orders.>"]}


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        yield started


def create(nats: Nats, config: Json) -> Json:
    """CONSUMER.CREATE on stream S, with the name in the subject if possible; returns the server's configuration.

    Raises:
        ServerError: the server refuses.
    """
    name = config.get("name") or config.get("durable_name", "")
    end = f".{name}" if name and not set(name) & set(" ./*>\\") else ""
    request = {"stream_name": "S", "config": config}
    made: Json = nats.request(f"CONSUMER.CREATE.S{end}", request)["config"]
    return made


def answer(nats: Nats, config: Json) -> tuple[Json | None, int | None]:
    try:
        return create(nats, config), None
    except ServerError as error:
        return None, error.code


def servers_answer(nats: Nats, row: Row) -> int | None:
    nats.request("STREAM.CREATE.S", row.stream)
    try:
        for config in (row.beside, row.there):
            if config is not None:
                create(nats, config)
        return answer(nats, row.asked)[1]
    finally:
        nats.delete("S")


@pytest.mark.parametrize("row", ROWS, ids=[json.dumps(row.asked)[:80] for row in ROWS])
def test_the_server_answers_a_misconfigured_consumer_as_the_page_says(nats: Nats, row: Row) -> None:
    assert servers_answer(nats, row) == row.server


LONG: list[Json] = [
    {"name": "c" * 255},
    {"name": "c" * 256},
    {"durable_name": "c" * 255},
    {"durable_name": "c" * 256},
    {"name": "c", "description": "d" * 4096},
    {"name": "c", "description": "é" * 2049},
    {"name": "c", "metadata": {"k": "v" * (128 * 1024 - 18)}},
    {"name": "c", "metadata": {"k": "v" * (128 * 1024 - 17)}},
    {"name": "c", "metadata": {"_nats.ver": "v" * 128 * 1024}},
    {"name": "c", "sample_freq": "9223372036854775807%"},
    {"name": "c", "sample_freq": "9223372036854775808"},
]


@pytest.mark.parametrize("config", LONG, ids=[json.dumps(config)[:60] for config in LONG])
def test_what_is_too_long_is_refused_by_both(nats: Nats, config: Json) -> None:
    nats.request("STREAM.CREATE.S", STREAM)
    try:
        _, code = answer(nats, config)
    finally:
        nats.delete("S")
    assert first_code(ConsumerConfig(**config), STREAM, []) == code


def first_code(
    consumer: ConsumerConfig,
    stream: Json,
    others: list[ConsumerConfig],
    existing: ConsumerConfig | None = None,
) -> int | None:
    found = consumer_refusals(consumer, parse_stream(stream, "S"), others, existing)
    return next((refusal.code for refusal in found if refusal.code), None)


TAKING: list[Json] = [
    {"name": "ORDERS", "subjects": ["orders.*", "refunds.>"]},
    {"name": "EU", "subjects": ["eu.>"]},
    {"name": "US", "subjects": ["us.*.a"]},
    {"name": "COPY", "mirror": {"name": "EU"}},
]
SUBJECTS = [
    "orders.paid",
    "orders.*",
    "orders.>",
    "orders",
    "refunds.a.b",
    "*.paid",
    "*.*.a",
    ">",
    "us.>",
    "COPY",
]


def test_the_server_and_we_find_the_same_streams_by_a_subject(nats: Nats) -> None:
    for config in TAKING:
        nats.request(f"STREAM.CREATE.{config['name']}", config)
    try:
        found = {one: nats.request("STREAM.NAMES", {"subject": one})["streams"] for one in SUBJECTS}
    finally:
        for config in reversed(TAKING):
            nats.delete(config["name"])
    streams = [parse_stream(config, "S") for config in TAKING]
    for subject, names in found.items():
        try:
            ours = [find_stream(Subscription(subject), streams).name]
        except UsageError as error:
            ours = [one.name for one in streams if f" {one.name}" in str(error)]
        assert sorted(ours) == sorted(names or []), subject


VALUES: dict[str, list[Any]] = {
    "durable_name": ["c"],
    "ack_policy": ["none", "all", "flow_control"],
    "ack_wait": [0, -1, SECOND],
    "backoff": [[], [SECOND], [SECOND, 2 * SECOND], [-1], [0]],
    "max_deliver": [0, -1, -5, 1, 2, 5],
    "max_ack_pending": [0, -1, -7, 1, 10, 2000],
    "deliver_policy": ["all", "last", "last_per_subject", "new", "by_start_sequence"],
    "opt_start_seq": [0, 1, 5],
    "opt_start_time": ["2026-01-01T00:00:00.25Z"],
    "filter_subject": [
        "",
        "orders.a",
        "orders.*",
        ">",
        "orders.a.*",
        "a..b",
        "other",
        "a.>.b",
        "a b",
    ],
    "filter_subjects": [
        [],
        ["orders.a"],
        ["orders.a", "orders.b"],
        ["*.a", "orders.*"],
        [">", "a"],
    ],
    "inactive_threshold": [0, -1, SECOND, 60 * SECOND],
    "pause_until": ["2036-01-01T00:00:00.5Z", "0001-01-01T00:00:00Z"],
    "deliver_subject": ["", "push.c", "push.d", "orders.push", "push.*", "p..q"],
    "deliver_group": ["", "g"],
    "flow_control": [True, False],
    "idle_heartbeat": [0, -1, 1_000_000, SECOND, 5 * SECOND],
    "rate_limit_bps": [0, 1000],
    "max_waiting": [0, -3, 5, 512],
    "max_batch": [0, -1, 5],
    "max_expires": [0, -1, 1000, 1_000_000, SECOND],
    "max_bytes": [0, -1, 100],
    "priority_policy": ["none", "overflow", "pinned_client", "prioritized"],
    "priority_groups": [[], ["g"], [""], ["a b"], ["x" * 17], ["g", "h"]],
    "priority_timeout": [0, -1, SECOND],
    "replay_policy": ["instant", "original"],
    "sample_freq": ["", "50", "50%", "-1", "abc", "50%%", "+7", "-0", "%"],
    "headers_only": [True, False],
    "num_replicas": [0, 1, -1],
    "mem_storage": [True, False],
    "description": ["x"],
    "metadata": [{"a": "b"}, {}],
}
LIMITS: list[Json] = [
    {},
    {"consumer_limits": {"max_ack_pending": 10, "inactive_threshold": 10 * SECOND}},
    {"consumer_limits": {"max_ack_pending": -1, "inactive_threshold": -1}},
    {"max_consumers": 1},
]
OTHERS: list[list[Json]] = [
    [],
    [{"name": "o", **EXPLICIT}],
    [{"name": "o", "filter_subject": "orders.a", **EXPLICIT}],
    [{"name": "o", "filter_subjects": ["orders.a.*", "orders.b"], **EXPLICIT}],
    [{"name": "o", "ack_policy": "none", "direct": True, "deliver_subject": "push.o"}],
    [{"name": "o", "sourcing": True, **EXPLICIT}],
]


def request(rng: random.Random) -> Json:
    keys = rng.sample(sorted(VALUES), rng.randint(1, 4))
    return {"name": "c", **EXPLICIT, **{key: rng.choice(VALUES[key]) for key in keys}}


def told(config: Json) -> Json:
    """A configuration without server metadata, and without Go's zero times."""
    given = config.get("metadata", {})
    metadata = {key: value for key, value in given.items() if not key.startswith("_nats.")}
    said = {key: value for key, value in config.items() if value != "0001-01-01T00:00:00Z"}
    return {**said, "metadata": metadata}


@pytest.mark.parametrize("is_update", [False, True], ids=["created", "updated"])
def test_the_server_and_we_say_the_same_of_any_consumer(nats: Nats, is_update: bool) -> None:
    rng = random.Random(REQUESTS)
    for _ in range(REQUESTS):
        retention = rng.choice(["limits", "interest", "workqueue"])
        stream = {**STREAM, "retention": retention, **rng.choice(LIMITS)}
        nats.request("STREAM.CREATE.S", stream)
        try:
            compare(nats, rng, stream, is_update=is_update)
        finally:
            nats.delete("S")


def compare(nats: Nats, rng: random.Random, stream: Json, *, is_update: bool) -> None:
    made = [answer(nats, config)[0] for config in rng.choice(OTHERS)]
    others = [ConsumerConfig(**config) for config in made if config is not None]
    first, existing = request(rng), None
    if is_update:
        known = answer(nats, first)[0]
        existing = ConsumerConfig(**known) if known is not None else None
    asked = {**first, **request(rng)} if existing else request(rng)
    theirs, code = answer(nats, asked)
    consumer = ConsumerConfig(**asked)
    assert first_code(consumer, stream, others, existing) == code, (stream, made, first, asked)
    if theirs is not None:
        on = parse_stream(stream, "S")
        ours = (
            updated_consumer(existing, consumer, on)
            if existing
            else with_server_defaults(consumer, on)
        )
        assert told(ours.as_json()) == told(theirs), (stream, made, first, asked)
        assert told(with_server_defaults(ConsumerConfig(**theirs), on).as_json()) == told(theirs)
