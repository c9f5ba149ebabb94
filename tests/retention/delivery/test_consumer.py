from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.api.warehouse import open_warehouse
from retention.consumers.ack_result import AnswerResult
from retention.delivery import record
from retention.delivery.consumer import BatchConsumer
from retention.delivery.messages import Messages
from retention.delivery.upcoming import Upcoming, upcoming
from retention.errors import RefusedError, UsageError
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with

BILLING = {"durable_name": "billing", "ack_policy": "explicit", "ack_wait": 30 * SECOND}
MESSAGES = [Laid(seq, f"orders.{'abc'[seq % 3]}", START, b"x" * seq) for seq in range(1, 10)]


class Clock:
    """A manual clock."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def stream_with(folder: Path, clock: Clock, **consumer: Any) -> Stream:
    """ORDERS with nine messages in three segments, and the consumer billing."""
    config = BILLING | consumer
    limits: dict[str, Any] = {"retention": "interest", "no_ack": False, "subjects": ["orders.>"]}
    warehouse_with(folder, "parquet", START, consumers=[config], **limits)
    stream = open_warehouse(folder / "retention.yaml", engine="local", clock=clock).stream("ORDERS")
    lay(stream.opened, [File(base, MESSAGES[base - 1 : base + 2]) for base in (1, 4, 7)])
    return stream


def consumer_of(folder: Path, clock: Clock, **config: Any) -> BatchConsumer:
    return stream_with(folder, clock, **config).consumer("billing")


def seqs(messages: Messages) -> list[int]:
    numbers: list[int] = messages.seqs.tolist()
    return numbers


def test_messages_come_in_order_and_not_twice(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock)
    assert seqs(billing.fetch(4)) == [1, 2, 3, 4]
    assert seqs(billing.fetch(4)) == [5, 6, 7, 8]
    assert seqs(billing.fetch(4)) == [9]
    assert seqs(billing.fetch(4)) == []
    assert billing.state.num_ack_pending == 9


def test_a_message_has_what_was_published(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock)
    first, second = billing.fetch(2)
    assert (second.seq, second.subject, second.payload, second.headers) == (
        2,
        "orders.c",
        b"xx",
        b"",
    )
    assert (second.consumer_seq, second.deliveries) == (2, 1)
    assert first.ack() == AnswerResult(taken=1)
    assert first.ack() == AnswerResult(repeated=1)
    assert billing.ack([2, 9]) == AnswerResult(taken=1, undelivered=1)


def test_what_is_not_answered_in_time_comes_again(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock)
    billing.fetch(3).filter([True, False, True]).ack()
    clock.now += 30 * SECOND - 1
    assert seqs(billing.fetch(1)) == [4]
    clock.now += 1
    again = billing.fetch(2)
    assert seqs(again) == [2, 5]
    assert again.table["deliveries"].to_pylist() == [2, 1]


def test_naks_come_again_after_their_delay(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock)
    first, second, third = billing.fetch(3)
    first.nak("5s")
    second.nak()
    assert seqs(billing.fetch(1)) == [2]
    clock.now += 5 * SECOND
    assert seqs(billing.fetch(1)) == [1]
    third.in_progress()
    clock.now += 26 * SECOND
    assert seqs(billing.fetch(1)) == [2]
    third.ack()
    assert billing.state.pending["seq"].to_pylist() == [1, 2]


def test_what_was_tried_often_enough_stays_and_is_needed(tmp_path: Path, clock: Clock) -> None:
    stream = stream_with(tmp_path, clock, max_deliver=1)
    billing = stream.consumer("billing")
    billing.fetch(2)
    clock.now += 30 * SECOND
    assert seqs(billing.fetch(2)) == [3, 4]
    assert billing.state.redelivered["seq"].to_pylist() == [1, 2]
    billing.ack([3, 4])
    stream.plan().apply()
    assert stream.state().messages == 7
    billing.term([1], "no such order")
    stream.plan().apply()
    assert stream.state().first_seq == 2


def test_a_term_settles_and_its_reason_is_logged(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    billing = consumer_of(tmp_path, clock)
    with caplog.at_level(logging.INFO, "retention.consuming"):
        assert billing.fetch(2).term("no such order") == AnswerResult(taken=2)
    assert "ORDERS > billing: [1, 2]: no such order" in caplog.text
    assert billing.state.ack_floor.stream_seq == 2


def test_only_what_filters_match_is_delivered(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock, filter_subjects=["orders.a", "orders.b"])
    assert seqs(billing.fetch(3)) == [1, 3, 4]
    assert seqs(billing.fetch()) == [6, 7, 9]


def test_no_more_wait_than_may(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock, max_ack_pending=3)
    assert seqs(billing.fetch(2)) == [1, 2]
    first = billing.fetch(2)
    assert seqs(first) == [3]
    assert seqs(billing.fetch(2)) == []
    billing.nak([1, 2])
    assert seqs(billing.fetch()) == [1, 2]
    first.ack()
    assert seqs(billing.fetch()) == [4]


def test_one_ack_stands_for_all_before_it(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock, ack_policy="all")
    messages = list(billing.fetch(5))
    assert messages[3].ack() == AnswerResult(taken=1)
    assert billing.state.pending["seq"].to_pylist() == [5]
    assert messages[1].ack() == AnswerResult(repeated=1)


def test_without_acks_a_delivery_settles(tmp_path: Path, clock: Clock) -> None:
    stream = stream_with(tmp_path, clock, ack_policy="none", ack_wait=0)
    billing = stream.consumer("billing")
    assert billing.fetch(5).ack() == AnswerResult(repeated=5)
    stream.plan().apply()
    assert stream.state().first_seq == 6


def test_a_batch_has_no_more_bytes_than_asked_for(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock)
    sizes = [30 + len("orders.a") + seq for seq in range(1, 10)]
    assert seqs(billing.fetch(9, max_bytes=sum(sizes[:4]))) == [1, 2, 3, 4]
    with pytest.raises(RefusedError, match=f"message 5 has {sizes[4]} bytes"):
        billing.fetch(1, max_bytes=sizes[4] - 1)
    assert seqs(billing.fetch(1, max_bytes=sizes[4])) == [5]


def test_headers_only_says_how_long_the_payload_is(tmp_path: Path, clock: Clock) -> None:
    [first] = consumer_of(tmp_path, clock, headers_only=True).fetch(1)
    assert (first.payload, first.headers) == (b"", b"NATS/1.0\r\nNats-Msg-Size: 1\r\n\r\n")


def test_what_a_limit_took_is_not_waited_for(tmp_path: Path, clock: Clock) -> None:
    stream = stream_with(tmp_path, clock)
    billing = stream.consumer("billing")
    billing.fetch(3)
    stream.delete(1, 2).apply()
    clock.now += 30 * SECOND
    assert seqs(billing.fetch(2)) == [3, 4]
    assert billing.state.ack_floor.stream_seq == 2


def test_what_comes_later_is_found(tmp_path: Path, clock: Clock) -> None:
    stream = stream_with(tmp_path, clock)
    billing = stream.consumer("billing")
    billing.fetch().ack()
    stream.publish(['{"subject": "orders.d", "data": "late"}'])
    assert [message.payload for message in billing.fetch()] == [b"late"]


def test_nothing_is_delivered_while_a_consumer_is_paused(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock, pause_until="2023-11-14T22:14:20Z")
    assert seqs(billing.fetch()) == []
    clock.now += 60 * SECOND
    assert len(billing.fetch()) == 9


def test_everything_that_was_given_and_not_answered_is_settled_at_once(
    tmp_path: Path, clock: Clock
) -> None:
    billing = consumer_of(tmp_path, clock)
    billing.fetch(3)
    billing.fetch(3).filter([False, True, False]).nak("1h")
    assert billing.ack_all() == AnswerResult(taken=5)
    assert billing.ack_all() == AnswerResult()
    assert billing.state.pending["seq"].to_pylist() == [5]


def test_the_last_use_is_recorded_and_an_idle_request_writes_only_where_that_matters(
    tmp_path: Path, clock: Clock
) -> None:
    for folder, config, versions in (("a", {}, 0), ("b", {"inactive_threshold": "1h"}, 1)):
        stream = stream_with(tmp_path / folder, clock, **config)
        billing = stream.consumer("billing")
        billing.fetch()
        table = ConsumerTable(stream.opened.root)
        before = table.read("billing")
        clock.now += 1
        billing.fetch()
        after = table.read("billing")
        assert before is not None
        assert after is not None
        assert after.version == before.version + versions
        assert after.state.last_active_ns == START + versions + (folder == "b")


REFUSED = [
    ({"deliver_subject": "push.here"}, "pushes its messages to push.here"),
    ({"priority_policy": "overflow", "priority_groups": ["g"]}, "batches are not ranked"),
]


@pytest.mark.parametrize(("config", "why"), REFUSED, ids=["push", "priorities"])
def test_who_cannot_be_asked_is_refused(
    tmp_path: Path, clock: Clock, config: dict[str, Any], why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        consumer_of(tmp_path, clock, **config)


def test_requests_stay_within_what_the_consumer_allows(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock, max_batch=2, max_bytes=1000)
    assert seqs(billing.fetch()) == [1, 2]
    for request in ((3, None), (2, 1001), (0, None), (1, 0)):
        with pytest.raises(UsageError):
            billing.fetch(*request)


def test_a_consumer_that_is_not_there_is_named(tmp_path: Path, clock: Clock) -> None:
    stream = stream_with(tmp_path, clock)
    billing = stream.consumer("billing")
    with pytest.raises(UsageError, match="no consumer packing"):
        stream.consumer("packing")
    stream.consumers.remove("billing")
    with pytest.raises(UsageError, match="no consumer billing"):
        billing.fetch()


def test_who_finds_its_own_change_under_that_of_a_rival_is_told_of_it(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table reports a rival's earlier commit; the rival had built upon this change."""
    stream = stream_with(tmp_path, clock)
    billing, rival = stream.consumer("billing"), stream.consumer("billing")
    update = ConsumerTable.update

    def again(table: ConsumerTable, name: str, change: Any) -> ConsumerRecord:
        monkeypatch.setattr(ConsumerTable, "update", update)
        update(table, name, change)
        rival.fetch(2)
        return update(table, name, change)

    monkeypatch.setattr(ConsumerTable, "update", again)
    assert seqs(billing.fetch(3)) == [1, 2, 3]
    assert seqs(billing.fetch(3)) == [6, 7, 8]


def test_what_a_rival_gave_back_meanwhile_is_not_taken_for_lost(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the read of the stream, a message is added, delivered to a rival and nacked by it."""
    stream = stream_with(tmp_path, clock)
    billing, rival = stream.consumer("billing"), stream.consumer("billing")
    billing.fetch().ack()
    used = "retention.delivery.consumer.upcoming"

    def slowly(*given: Any) -> Upcoming:
        monkeypatch.setattr(used, upcoming)
        stream_before = upcoming(*given)
        stream.publish(['{"subject": "orders.d", "data": "late"}'])
        rival.fetch().nak()
        return stream_before

    monkeypatch.setattr(used, slowly)
    assert seqs(billing.fetch()) == []
    assert seqs(billing.fetch()) == [10]


def test_a_record_names_no_more_changes_than_it_must(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "REMEMBERED", 2)
    stream = stream_with(tmp_path, clock)
    billing = stream.consumer("billing")
    for _ in range(4):
        billing.fetch(1)
    stored = ConsumerTable(stream.opened.root).read("billing")
    assert stored is not None
    assert len(stored.changes) == 2


def test_of_what_was_there_before_only_the_last_of_each_subject_is_delivered(
    tmp_path: Path, clock: Clock
) -> None:
    wanted = {"deliver_policy": "last_per_subject", "filter_subject": "orders.>"}
    stream = stream_with(tmp_path, clock, max_ack_pending=3, **wanted)
    billing = stream.consumer("billing")
    assert stream.consumers.info("billing").num_pending == 3
    stream.publish(['{"subject": "orders.a", "data": "late"}', '{"subject": "orders.b"}'])
    assert stream.consumers.info("billing").num_pending == 5
    stream.delete(8).apply()
    first = billing.fetch(1)
    assert seqs(first) == [7]
    assert seqs(billing.fetch(9)) == [9, 10]
    assert stream.consumers.info("billing").num_pending == 1
    first.ack()
    assert seqs(billing.fetch(9)) == [11]


def test_what_is_sampled_is_told_to_whoever_acknowledges(tmp_path: Path, clock: Clock) -> None:
    stream = stream_with(tmp_path, clock, sample_freq="100%")
    billing = stream.consumer("billing")
    billing.fetch(2)
    clock.now += 30 * SECOND
    again = billing.fetch(3)
    clock.now += 7
    answered = again.ack()
    rows = answered.sampled.select(["stream_seq", "consumer_seq", "ack_time", "deliveries"])
    assert rows.to_pydict() == {
        "stream_seq": [1, 2, 3],
        "consumer_seq": [3, 4, 5],
        "ack_time": [7, 7, 7],
        "deliveries": [2, 2, 1],
    }
    assert again.ack().sampled.num_rows == 0
    assert billing.fetch(1).term().sampled.num_rows == 0
    line = json.loads(answered.advisories()[0])
    assert line["subject"] == "$JS.EVENT.METRIC.CONSUMER.ACK.ORDERS.billing"
    assert json.loads(line["data"]) == {
        "type": "io.nats.jetstream.metric.v1.consumer_ack",
        "id": "ORDERS.billing.3.2",
        "timestamp": "2023-11-14T22:13:50.000000007Z",
        "stream": "ORDERS",
        "consumer": "billing",
        "consumer_seq": 3,
        "stream_seq": 1,
        "ack_time": 7,
        "deliveries": 2,
    }


def test_what_is_sampled_can_be_published_once(tmp_path: Path, clock: Clock) -> None:
    billing = consumer_of(tmp_path, clock, sample_freq="100")
    lines = billing.fetch(3).ack().advisories()
    metrics = open_warehouse(tmp_path / "retention.yaml", clock=clock).new_stream("METRICS")
    metrics.publish(lines)
    metrics.publish(lines)
    assert metrics.state().messages == 3


def test_with_replay_of_the_original_it_is_told_how_long_after_the_one_before_a_message_came(
    tmp_path: Path, clock: Clock
) -> None:
    stream = stream_with(tmp_path, clock, replay_policy="original")
    billing = stream.consumer("billing")
    line = '{"subject": "orders.d", "ts_ns": %d}'
    stream.publish([line % (START + after) for after in (5, 12)])
    assert [message.gap_ns for message in billing.fetch(3)] == [0, 0, 0]
    billing.nak([2])
    assert [(message.seq, message.gap_ns) for message in billing.fetch(8)] == [
        *((seq, 0) for seq in (2, 4, 5, 6, 7, 8, 9)),
        (10, 5),
    ]
    assert [message.gap_ns for message in billing.fetch(8)] == [7]
    assert consumer_of(tmp_path / "instant", clock).fetch(1).table["gap_ns"].null_count == 1
