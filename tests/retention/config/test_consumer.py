from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.config import StreamConfig, parse_stream
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.core.units import MINUTE, SECOND
from tests.support.laws import law

ORDERS = parse_stream({"name": "ORDERS", "subjects": ["orders.>"]}, "ORDERS")
BOUNDED = parse_stream(
    {"name": "S", "consumer_limits": {"max_ack_pending": 10, "inactive_threshold": "1m"}}, "S"
)
NEGATIVE = parse_stream(
    {"name": "S", "consumer_limits": {"max_ack_pending": -1, "inactive_threshold": -1}}, "S"
)
SHOWN: dict[str, Any] = {
    "durable_name": "billing",
    "name": "billing",
    "description": "bills what is paid",
    "deliver_policy": "by_start_time",
    "opt_start_time": "2026-11-20T00:00:00.123456789Z",
    "ack_policy": "explicit",
    "ack_wait": 1_000_000_000,
    "max_deliver": 5,
    "backoff": [1_000_000_000, 60_000_000_000],
    "filter_subjects": ["orders.paid", "orders.refunded"],
    "replay_policy": "instant",
    "sample_freq": "50%",
    "max_waiting": 512,
    "max_ack_pending": 1000,
    "headers_only": True,
    "max_batch": 100,
    "max_expires": 5_000_000_000,
    "max_bytes": 1_048_576,
    "num_replicas": 1,
    "metadata": {"_nats.level": "5", "_nats.req.level": "1", "_nats.ver": "2.15.1", "team": "a"},
    "pause_until": "2026-12-01T00:00:00Z",
    "priority_groups": ["main"],
    "priority_policy": "overflow",
}
"""The `config` of a real `nats consumer info --json`."""


def consumer_of(**given: Any) -> ConsumerConfig:
    return ConsumerConfig.model_validate(given)


def test_what_the_server_says_of_a_consumer_is_taken_and_told_as_it_is() -> None:
    consumer = consumer_of(**SHOWN)
    assert consumer.as_json() == SHOWN
    assert with_server_defaults(consumer, ORDERS) == consumer
    assert json.loads(consumer.model_dump_json()) | SHOWN == json.loads(consumer.model_dump_json())


def test_people_write_durations_and_sizes_as_in_the_rest_of_the_file() -> None:
    consumer = consumer_of(
        name="c", ack_wait="1m30s", backoff=["1s", "1m"], inactive_threshold="2w", max_bytes="1MiB"
    )
    assert (consumer.ack_wait, consumer.backoff) == (90 * SECOND, (SECOND, MINUTE))
    assert (consumer.inactive_threshold, consumer.max_bytes) == (14 * 24 * 60 * MINUTE, 2**20)


def test_a_durable_consumer_is_called_by_its_durable_name() -> None:
    assert consumer_of(durable_name="billing").name == "billing"
    assert consumer_of(durable_name="billing").is_durable
    assert not consumer_of(name="billing").is_durable


def test_one_filter_and_many_are_read_alike() -> None:
    assert consumer_of(filter_subject="a").filters == ("a",)
    assert consumer_of(filter_subjects=["a", "b"]).filters == ("a", "b")
    assert consumer_of().filters == ()


def assumed(stream: StreamConfig = ORDERS, **given: Any) -> dict[str, Any]:
    consumer = consumer_of(name="c", **given)
    plain = consumer_of(name="c", **given).as_json()
    found = with_server_defaults(consumer, stream).as_json()
    return {key: value for key, value in found.items() if plain.get(key) != value}


PULL = {"max_waiting": 512, "max_deliver": -1, "inactive_threshold": 5 * SECOND}


@pytest.mark.parametrize(
    ("stream", "given", "made"),
    [
        (ORDERS, {}, PULL),
        (ORDERS, {"ack_policy": "explicit"}, PULL | {"ack_wait": 30 * SECOND, "max_ack_pending": 1000}),
        (ORDERS, {"ack_policy": "all"}, PULL | {"ack_wait": 30 * SECOND, "max_ack_pending": 1000}),
        (ORDERS, {"durable_name": "c"}, {"max_waiting": 512, "max_deliver": -1}),
        (BOUNDED, {}, PULL | {"max_ack_pending": 10, "inactive_threshold": MINUTE}),
        (BOUNDED, {"durable_name": "c", "max_ack_pending": -1},
         {"max_waiting": 512, "max_deliver": -1, "inactive_threshold": MINUTE}),
        (NEGATIVE, {}, PULL | {"max_ack_pending": -1}),
        (ORDERS, {"backoff": ["3s", "9s"]}, PULL | {"ack_wait": 3 * SECOND}),
        (ORDERS, {"deliver_subject": "push"}, {"max_deliver": -1, "inactive_threshold": 5 * SECOND}),
        (ORDERS, {"deliver_subject": "push", "ack_policy": "flow_control"},
         {"max_deliver": -1, "inactive_threshold": 5 * SECOND, "max_ack_pending": 1000,
          "flow_control": True, "idle_heartbeat": SECOND}),
        (ORDERS, {"max_deliver": -9, "max_ack_pending": -9, "max_waiting": -9},
         PULL | {"max_ack_pending": -1}),
        (ORDERS, {"priority_policy": "pinned_client"}, PULL | {"priority_timeout": 2 * MINUTE}),
    ],
)  # fmt: skip
def test_what_is_left_out_is_what_the_server_assumes(
    stream: StreamConfig, given: dict[str, Any], made: dict[str, Any]
) -> None:
    assert assumed(stream, **given) == made


COUNTS = ("max_deliver", "max_ack_pending", "max_waiting", "max_batch", "max_bytes")
DURATIONS = ("ack_wait", "max_expires", "idle_heartbeat", "inactive_threshold", "priority_timeout")


@law
@given(
    numbers=st.dictionaries(st.sampled_from([*COUNTS, *DURATIONS]), st.integers(-3, 3)),
    backoff=st.lists(st.integers(0, 3), max_size=2),
    words=st.fixed_dictionaries(
        {
            "ack_policy": st.sampled_from(["none", "all", "explicit", "flow_control"]),
            "deliver_subject": st.sampled_from(["", "push"]),
            "durable_name": st.sampled_from(["", "c"]),
            "priority_policy": st.sampled_from(["none", "overflow", "pinned_client"]),
        }
    ),
    stream=st.sampled_from([ORDERS, BOUNDED, NEGATIVE]),
)
def test_a_resolved_consumer_needs_no_resolving_and_survives_the_servers_json(
    numbers: dict[str, int], backoff: list[int], words: dict[str, Any], stream: StreamConfig
) -> None:
    once = with_server_defaults(consumer_of(name="c", backoff=backoff, **numbers, **words), stream)
    assert with_server_defaults(once, stream) == once
    assert consumer_of(**once.as_json()) == once
