from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from retention.errors import RefusedError
from retention.ingest.sync.consumers import bring_consumers
from retention.ingest.sync.run import run_sync
from tests.support.recorded_stream import RecordedStream, messages
from tests.support.sandboxes import opened

SYNCED = {"name": "ORDERS", "sync": {"context": "prod"}, "retention": "interest"}


def consumer(name: str, floor: int, **config: Any) -> Any:
    values = {"durable_name": name, "ack_policy": "explicit", **config}
    return SimpleNamespace(name=name, config=values, ack_floor=floor)


def test_interest_in_the_lake_releases_what_every_consumer_of_the_server_has_settled(
    tmp_path: Path,
) -> None:
    warehouse = opened(tmp_path, SYNCED)
    copy = warehouse.new_stream("ORDERS").opened
    remote = RecordedStream.of(messages(1, 9))
    remote.known_consumers = [consumer("a", 5), consumer("b", 3), consumer("JS_MIRROR_x", 9)]
    assert bring_consumers(copy, remote, 0) == 2
    run_sync(copy, remote)
    # Above the end of the copy nothing is settled, and the floors come once the messages are there.
    assert warehouse.stream("ORDERS").plan().plan.removed_messages == 0
    bring_consumers(copy, remote, 9)
    assert warehouse.stream("ORDERS").plan().plan.removed_messages == 3
    remote.known_consumers = [consumer("a", 5), consumer("b", 1)]
    bring_consumers(copy, remote, 9)
    assert warehouse.stream("ORDERS").plan().plan.removed_messages == 3


def test_a_consumer_that_the_server_deleted_keeps_nothing_any_more(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, SYNCED)
    stream = warehouse.new_stream("ORDERS")
    remote = RecordedStream.of(messages(1, 9))
    run_sync(stream.opened, remote)
    stream.consumers.add({"durable_name": "ours", "ack_policy": "explicit"})
    remote.known_consumers = [consumer("a", 5), consumer("b", 3), consumer("ours", 7)]
    bring_consumers(stream.opened, remote, 9)
    remote.known_consumers = [consumer("a", 6, filter_subject="s.1")]
    bring_consumers(stream.opened, remote, 9)
    floors = {each.name: each.ack_floor["stream_seq"] for each in stream.consumers.list()}
    assert floors == {"a": 6, "ours": 7}


def test_consumers_are_there_before_the_first_message(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, SYNCED)
    copy = warehouse.new_stream("ORDERS").opened
    remote = RecordedStream.of(messages(1, 9))
    remote.known_consumers = [consumer("a", 0)]
    calls: list[int] = []

    def along(last_seq: int) -> None:
        calls.append(last_seq)
        bring_consumers(copy, remote, last_seq)

    run_sync(copy, remote, along=along)
    assert calls == [0, 9]
    assert warehouse.stream("ORDERS").plan().plan.removed_messages == 0
    remote.created = "2026-11-23T00:00:00Z"
    remote.publish(messages(10, 10, b"other"))
    remote.rows = remote.rows.slice(9)
    with pytest.raises(RefusedError):
        run_sync(copy, remote, along=along)
    assert calls == [0, 9]
