from __future__ import annotations

from typing import Any

import pytest

from retention.config import parse_stream
from retention.config.checks.consumer import consumer_refusals
from retention.config.consumer import ConsumerConfig

Codes = list[int | None]


def codes(stream: dict[str, Any] | None = None, **consumer: Any) -> Codes:
    given = {"name": "ORDERS", "subjects": ["orders.>"], **(stream or {})}
    asked = ConsumerConfig.model_validate({"name": "c", **consumer})
    found = consumer_refusals(asked, parse_stream(given, "ORDERS"))
    return [refusal.code for refusal in found]


def test_nothing_is_wrong_with_a_plain_consumer() -> None:
    assert codes() == []
    assert codes(durable_name="c", filter_subject="orders.paid", ack_policy="explicit") == []


@pytest.mark.parametrize(
    ("retention", "replicas", "answers"),
    [
        ("limits", 3, {0: [], 1: [], 2: [], 3: [], 4: [10126], -1: [10133]}),
        ("interest", 3, {0: [], 1: [10134], 2: [10134], 3: [], 4: [10126], -1: [10133]}),
        ("workqueue", 3, {0: [], 1: [10134], 2: [10134], 3: [], 5: [10126], -1: [10133]}),
        ("interest", 1, {0: [], 1: [], 2: [10126], 3: [10126], -1: [10133]}),
        ("limits", 1, {0: [], 1: [], 2: [10126], 5: [10126], -1: [10133]}),
    ],
)
def test_replicas_are_refused_as_a_cluster_of_three_servers_refused_them(
    retention: str, replicas: int, answers: dict[int, Codes]
) -> None:
    stream = {"retention": retention, "num_replicas": replicas}
    for count, expected in answers.items():
        assert codes(stream, num_replicas=count, ack_policy="explicit") == expected


METADATA = 128 * 1024 - len("_nats.req.level0")
PUSH = {"deliver_subject": "push.c"}
GROUP = {"priority_policy": "overflow"}


@pytest.mark.parametrize(
    ("allowed", "refused", "code"),
    [
        ({"max_deliver": 2, "backoff": [1, 1]}, {"max_deliver": 1, "backoff": [1, 1]}, 10116),
        ({"idle_heartbeat": "100ms", **PUSH}, {"idle_heartbeat": "99ms", **PUSH}, 10083),
        ({"max_expires": "1ms"}, {"max_expires": "999us"}, 10115),
        ({"sample_freq": f"{2**63 - 1}%"}, {"sample_freq": f"{2**63}"}, 10095),
        ({"priority_groups": ["g" * 16], **GROUP}, {"priority_groups": ["g" * 17], **GROUP}, 10162),
        ({"name": "c" * 255}, {"name": "c" * 256}, 10012),
        ({"name": "", "durable_name": "c" * 255}, {"name": "", "durable_name": "c" * 256}, 10102),
        ({"description": "é" * 2048}, {"description": "é" * 2049}, 10107),
        ({"metadata": {"k": "v" * (METADATA - 1)}}, {"metadata": {"k": "v" * METADATA}}, 10135),
        ({"metadata": {"_nats.ver": "v" * 2**17}}, {"metadata": {"nats.ver": "v" * 2**17}}, 10135),
    ],
)  # fmt: skip
def test_the_last_value_that_a_server_takes_is_taken(
    allowed: dict[str, Any], refused: dict[str, Any], code: int
) -> None:
    assert codes(**allowed) == []
    assert codes(**refused) == [code]


def test_consumers_of_streams_that_take_from_this_one_are_not_counted() -> None:
    own = ConsumerConfig(name="own", ack_policy="explicit")
    direct = ConsumerConfig(name="copy", direct=True, deliver_subject="push")
    sourcing = ConsumerConfig(name="eu", sourcing=True, ack_policy="explicit")
    one = parse_stream({"name": "A", "max_consumers": 1}, "A")
    queue = parse_stream({"name": "A", "retention": "workqueue"}, "A")
    filtered = ConsumerConfig(name="a", ack_policy="explicit", filter_subject="A")
    for internal in (direct, sourcing):
        assert list(consumer_refusals(own, one, [internal])) == []
        assert list(consumer_refusals(internal, one, [own])) == []
        assert list(consumer_refusals(own, queue, [internal])) == []
        assert list(consumer_refusals(filtered, queue, [internal])) == []
    assert [refusal.code for refusal in consumer_refusals(filtered, queue, [own])] == [10100]


def test_everything_wrong_is_told_at_once() -> None:
    found = codes(
        {"retention": "workqueue"},
        name="a/b",
        ack_policy="all",
        deliver_policy="new",
        opt_start_seq=3,
        sample_freq="often",
        filter_subjects=["orders.a", "orders.*"],
    )
    assert found == [10127, 10138, 10094, 10095, 10098, 10101]


def test_acknowledging_nothing_is_told_of_a_work_queue_once() -> None:
    assert codes({"retention": "workqueue"}, ack_policy="none") == [10084]


@pytest.mark.parametrize("look_alike", ["orders.*b.>", "orders.*b", "*x.orders", "orders.>>", "**"])
def test_a_filter_with_a_token_that_looks_like_a_wildcard_is_refused_by_name(
    look_alike: str,
) -> None:
    stream = parse_stream({"name": "ALL", "subjects": [">"], "no_ack": True}, "ALL")
    (only,) = consumer_refusals(ConsumerConfig(name="c", filter_subject=look_alike), stream)
    assert only.code is None
    assert look_alike in only.text


@pytest.mark.parametrize("plain", ["orders.b*", "orders.a*b.>", "orders.*.>", "orders.*.x>"])
def test_a_star_inside_of_a_token_is_no_wildcard(plain: str) -> None:
    assert codes(filter_subject=plain) == []


@pytest.mark.parametrize(
    "stream",
    [
        {"subjects": [], "mirror": {"name": "OTHER"}},
        {"sources": [{"name": "OTHER"}]},
        {"subject_transform": {"src": "orders.*", "dest": "sold.{{wildcard(1)}}"}},
    ],
)
def test_a_filter_may_lie_outside_of_subjects_that_do_not_say_what_is_stored(
    stream: dict[str, Any],
) -> None:
    assert codes(filter_subject="sold.paid") == [None]
    assert codes(stream, filter_subject="sold.paid") == []


@pytest.mark.parametrize("inside", ["orders.>", ">", "*.paid", "orders.*.x", "*.*"])
def test_a_filter_needs_to_share_only_some_subject_with_its_stream(inside: str) -> None:
    assert codes(filter_subject=inside) == []
