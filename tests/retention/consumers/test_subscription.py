from __future__ import annotations

from typing import Any

import pytest

from retention.config import StreamConfig, parse_stream
from retention.config.consumer import ConsumerConfig
from retention.consumers.subscription import Subscription, find_stream, subscription_refusals
from retention.errors import UsageError


def stream(name: str, *subjects: str, **fields: Any) -> StreamConfig:
    return parse_stream({"name": name, "subjects": list(subjects), **fields}, name)


ORDERS = stream("ORDERS", "orders.*", "refunds.>")
STREAMS = [
    ORDERS,
    stream("EU", "eu.>"),
    stream("US", "us.>"),
    stream("COPY", mirror={"name": "EU"}),
]


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("orders.paid", "ORDERS"),
        ("orders.*", "ORDERS"),
        ("refunds.a.b", "ORDERS"),
        ("orders.>", "ORDERS"),
        ("*.paid.*", "several"),
        ("eu.a", "EU"),
        (">", "several"),
        ("orders.paid.late", "no stream"),
        ("COPY", "no stream"),
        ("", "no subject is given, either"),
        ("a..b", "'a..b' is not a subject"),
    ],
)
def test_a_stream_is_found_by_a_subject_alone_if_it_is_the_only_one(
    subject: str, name: str
) -> None:
    try:
        assert find_stream(Subscription(subject), STREAMS).name == name
    except UsageError as error:
        assert name in str(error)  # noqa: PT017


def test_a_stream_that_is_named_is_that_whatever_the_subject() -> None:
    assert find_stream(Subscription("orders.paid", stream="EU"), STREAMS).name == "EU"
    with pytest.raises(UsageError, match="there is no stream ASIA"):
        find_stream(Subscription("orders.paid", stream="ASIA"), STREAMS)


def consumer_of(**given: Any) -> ConsumerConfig:
    return ConsumerConfig.model_validate({"durable_name": "c", **given})


def refusals(existing: ConsumerConfig | None = None, **wanted: Any) -> list[str]:
    refused = subscription_refusals(Subscription(**wanted), ORDERS, existing)
    return [f"{refusal.keys[0]}: {refusal.text}" for refusal in refused]


def only(*arguments: Any, **wanted: Any) -> str:
    (text,) = refusals(*arguments, **wanted)
    return text


PULLED = consumer_of(ack_policy="explicit")
PUSHED = consumer_of(deliver_subject="push.c")
SHARED = consumer_of(deliver_subject="push.c", deliver_group="workers")
BEATING = consumer_of(deliver_subject="push.c", deliver_group="workers", idle_heartbeat="1s")


def test_what_a_consumer_allows_is_not_refused() -> None:
    assert refusals(subject="orders.paid") == []
    assert refusals(PULLED, pull=True, subject="orders.paid", consumer="c") == []
    assert refusals(PUSHED, subject="orders.paid") == []
    assert refusals(SHARED, queue="workers") == []
    assert refusals(pull=True, consumer="c", config=consumer_of()) == []


@pytest.mark.parametrize("fields", [{"idle_heartbeat": "1s"}, {"flow_control": True}])
def test_a_queue_has_neither_heartbeats_nor_flow_control(fields: dict[str, Any]) -> None:
    assert only(queue="workers", config=consumer_of(**fields)).startswith("queue: heartbeats and")
    assert only(BEATING, queue="workers").startswith("queue: heartbeats and")


@pytest.mark.parametrize("policy", ["none", "all"])
def test_who_asks_for_messages_acknowledges_each(policy: str) -> None:
    assert "write explicit" in only(pull=True, config=consumer_of(ack_policy=policy))
    assert refusals(config=consumer_of(ack_policy=policy)) == []


def test_a_consumer_that_is_named_has_to_be_there_unless_it_is_asked() -> None:
    assert only(consumer="c") == "consumer: c is not on stream ORDERS; name one that is, or none"
    assert refusals(consumer="c", pull=True) == []


@pytest.mark.parametrize(
    ("existing", "queue", "text"),
    [
        (SHARED, "", "queue: c has queue workers; join it"),
        (SHARED, "others", "queue: c has queue workers, not this one; join it"),
        (PUSHED, "workers", "queue: c has no queue; leave the queue out"),
    ],
)
def test_a_queue_is_that_of_the_consumer(existing: ConsumerConfig, queue: str, text: str) -> None:
    assert only(existing, queue=queue) == text


def test_pushing_and_asking_are_not_mixed() -> None:
    assert only(PUSHED, pull=True).startswith("pull: c pushes to push.c")
    assert only(PULLED).startswith("pull: c pushes nothing")


def test_the_subject_is_one_that_the_consumer_takes() -> None:
    paid = consumer_of(deliver_subject="p", filter_subject="orders.paid")
    both = consumer_of(deliver_subject="p", filter_subjects=["orders.paid", "orders.lost"])
    assert "is not a filter of c; write orders.paid" in only(paid, subject="orders.lost")
    assert refusals(both, subject="orders.lost") == refusals(both) == []


def test_subscribing_changes_no_consumer_but_where_it_pushes_to() -> None:
    config = consumer_of(deliver_subject="push.d", max_deliver=0, max_ack_pending=5)
    assert only(PUSHED, config=config) == (
        "config: max_ack_pending of c differs, and a subscription changes nothing; leave it out"
    )
