from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.consumers.state import new_state
from retention.core.units import DAY, HOUR, MINUTE
from retention.inspect.lag import Lag
from retention.inspect.state import BucketState, state_of
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.support.sandboxes import NOW, ORDERS, lines, opened


def stream_of(folder: Path, **settings: Any) -> Stream:
    return opened(folder, ORDERS | settings).stream("ORDERS")


def test_a_stream_that_never_held_anything_begins_at_one(tmp_path: Path) -> None:
    state = state_of(stream_of(tmp_path).opened, NOW)
    assert (state.first_seq, state.last_seq, state.messages, state.version) == (1, 0, 0, -1)
    assert state.first_ts_ns is None
    assert state.last_ts_ns is None


def test_a_configured_first_sequence_is_where_it_begins(tmp_path: Path) -> None:
    state = state_of(stream_of(tmp_path, first_seq=100).opened, NOW)
    assert (state.first_seq, state.last_seq) == (100, 99)


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_what_was_published_is_counted(tmp_path: Path, table_format: str) -> None:
    stream = stream_of(tmp_path, format=table_format)
    stream.publish([*lines(48, "orders.a"), *lines(2, "orders.b", NOW - HOUR)])
    state = state_of(stream.opened, NOW)
    assert (state.messages, state.first_seq, state.last_seq) == (50, 1, 50)
    assert (state.num_subjects, state.segments, state.format) == (2, 3, table_format)
    assert (state.first_ts_ns, state.last_ts_ns) == (NOW - 10 * DAY, NOW)
    sizes = (size for table in stream.messages() for size in table["size"].to_pylist())
    assert state.bytes == sum(sizes)


def test_an_emptied_stream_remembers_its_last_sequence(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    stream.publish(lines(5))
    stream.plan().apply()
    state = state_of(stream.opened, NOW)
    assert (state.messages, state.first_seq, state.last_seq) == (0, 6, 5)
    assert (state.num_subjects, state.segments, state.lag) == (0, 0, Lag(0, 0))


def test_lag_is_what_metadata_lets_go_for_sure(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_age="192h30m")
    stream.publish(lines(240))
    state = state_of(stream.opened, NOW)
    plan = stream.plan().plan
    assert plan.removed_messages == 48
    since = NOW - 10 * DAY + 192 * HOUR + 30 * MINUTE
    assert state.lag == Lag(48, plan.removed_bytes, since)


def test_lag_never_exceeds_what_goes(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_msgs=100)
    stream.publish(lines(240))
    lag = state_of(stream.opened, NOW).lag
    assert lag is not None
    assert 0 < lag.messages <= stream.plan().plan.removed_messages


def test_where_a_consumers_state_contradicts_itself_there_is_no_lag(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, retention="interest")
    stream.publish(lines(5))
    assert state_of(stream.opened, NOW).lag == Lag(0, 0)
    ahead = ConsumerRecord("billing", {}, new_state(9))
    ConsumerTable(stream.opened.root).update("billing", lambda _: ahead)
    assert state_of(stream.opened, NOW).lag is None
    assert state_of(stream.opened, NOW).as_json()["lag"] is None


def test_the_lag_counts_what_no_consumer_needs(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, retention="interest")
    stream.publish(lines(5))
    done = ConsumerRecord("billing", {}, new_state(6))
    ConsumerTable(stream.opened.root).update("billing", lambda _: done)
    lag = state_of(stream.opened, NOW).lag
    assert lag is not None
    assert lag.messages == 5


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_buckets_keys_are_counted_by_what_their_last_messages_do(
    tmp_path: Path, table_format: str
) -> None:
    settings = {"name": "KV_B", "subjects": ["$KV.B.>"], "format": table_format}
    stream = opened(tmp_path, settings).stream("KV_B")
    assert state_of(stream.opened, NOW).bucket == BucketState("B", 0, 0, 0)
    kinds: list[tuple[str, dict[str, str]]] = [
        ("a", {"KV-Operation": "DEL"}),
        ("b", {}),
        ("c", {"KV-Operation": "PURGE"}),
        ("a", {}),
        ("b", {"Nats-Marker-Reason": "Remove"}),
        ("d", {}),
        ("e", {}),
    ]
    stream.publish(
        [json.dumps({"subject": f"$KV.B.{key}", "headers": said}) for key, said in kinds]
    )
    state = state_of(stream.opened, NOW)
    assert state.bucket == BucketState("B", keys=5, live_keys=3, deletions=2)
    assert state.as_json()["bucket"]["live_keys"] == 3
    assert "bucket B: 3 live keys, 2 deleted" in repr(stream.state())
    assert "bucket B: 3 live keys" in stream.state()._repr_html_()


def test_other_streams_are_no_buckets(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    stream.publish(lines(5))
    assert state_of(stream.opened, NOW).bucket is None
    assert "bucket" not in repr(stream.state())
