from __future__ import annotations

from typing import Any

import pytest

from retention.config import StreamConfig, parse_stream
from retention.config.checks.consumer_updates import updated_consumer
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.consumers.configured import listed_consumers
from retention.core.units import SECOND
from retention.errors import RefusedError

EXPLICIT: dict[str, Any] = {"ack_policy": "explicit"}


def orders(*consumers: dict[str, Any], **fields: Any) -> StreamConfig:
    given = {"name": "ORDERS", "subjects": ["orders.>"], "consumers": list(consumers), **fields}
    return parse_stream(given, "ORDERS")


def consumer_of(**given: Any) -> ConsumerConfig:
    return ConsumerConfig.model_validate(given)


def stored(**consumers: dict[str, Any]) -> dict[str, ConsumerConfig]:
    return {
        name: with_server_defaults(consumer_of(durable_name=name, **fields), orders())
        for name, fields in consumers.items()
    }


def test_listed_consumers_are_created_or_updated_and_the_others_stay() -> None:
    stream = orders({"durable_name": "a", "max_deliver": 3}, {"durable_name": "b"})
    listed = listed_consumers(stream, stored(a={"max_deliver": 9}, z={}))
    assert list(listed) == ["a", "b"]
    assert [consumer.max_deliver for consumer in listed.values()] == [3, -1]
    assert listed_consumers(orders(), stored(z={})) == {}


def test_listing_again_changes_nothing() -> None:
    stream = orders({"name": "a", "backoff": ["1s"], **EXPLICIT}, {"durable_name": "b"})
    once = listed_consumers(stream, {})
    assert listed_consumers(stream, once) == once
    queue = orders({"name": "a", "filter_subject": "orders.a", **EXPLICIT}, retention="workqueue")
    assert listed_consumers(queue, listed_consumers(queue, {})) == listed_consumers(queue, {})


def test_an_update_leaves_a_pause_and_what_follows_from_being_durable_alone() -> None:
    existing = stored(a={"pause_until": "2027-01-01T00:00:00Z"})["a"]
    listed = consumer_of(name="a", pause_until="2028-01-01T00:00:00Z")
    made = updated_consumer(existing, listed, orders())
    assert (made.pause_until, made.inactive_threshold) == (existing.pause_until, 0)
    assert (
        updated_consumer(
            with_server_defaults(listed, orders()), listed, orders()
        ).inactive_threshold
        == 5 * SECOND
    )


def test_what_cannot_be_updated_is_refused_with_every_reason() -> None:
    stream = orders({"durable_name": "a", "deliver_policy": "new", **EXPLICIT}, {"name": "b"})
    with pytest.raises(RefusedError) as error:
        listed_consumers(stream, stored(a={}))
    assert str(error.value) == (
        "ORDERS: consumer a: deliver_policy: cannot be updated; leave it at all, or name another"
        " consumer (server error 10012); consumer a: ack_policy: cannot be updated; leave it at none,"
        " or name another consumer (server error 10012); no consumer was changed"
    )


def test_consumers_that_are_there_count_on_a_work_queue_and_under_a_limit() -> None:
    queue = orders({"name": "a", "filter_subject": "orders.a", **EXPLICIT}, retention="workqueue")
    with pytest.raises(RefusedError, match=r"consumer a: .* of consumer z; .*10100"):
        listed_consumers(queue, stored(z={"filter_subject": "orders.*", **EXPLICIT}))
    assert listed_consumers(queue, stored(z={"filter_subject": "orders.b", **EXPLICIT}))
    with pytest.raises(RefusedError, match="10026"):
        listed_consumers(orders({"name": "a"}, max_consumers=1), stored(z={}))
    assert listed_consumers(orders({"durable_name": "z"}, max_consumers=1), stored(z={}))
