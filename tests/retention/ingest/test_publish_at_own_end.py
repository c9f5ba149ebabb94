"""Publishes and puts through one object go on from its own commits, and see everything that others did between."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse
from retention.errors import DamagedError, LostCommitError
from retention.stores.delta.store import DeltaStore
from tests.support.overwritten_log import newest, overwrite
from tests.support.sandboxes import opened

Row = tuple[int, str]


def warehouse(folder: Path, **more: Any) -> Warehouse:
    """A new object for the same warehouse, as another process has it."""
    return opened(
        folder,
        {"name": "ORDERS", "subjects": ["orders.>"], **more},
        {
            "name": "KV_BENCH",
            "subjects": ["$KV.BENCH.>"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
        },
        format="delta",
    )


def stream(folder: Path, **more: Any) -> Stream:
    return warehouse(folder, **more).new_stream("ORDERS")


def line(data: str, **headers: str) -> dict[str, object]:
    return {"subject": "orders.a", "payload": data, "headers": headers}


def publish(orders: Stream, *payloads: str, **headers: str) -> list[int]:
    """Publish each message as a commit of its own; returns their sequences."""
    published = [orders.publish([line(data, **headers)]) for data in payloads]
    return [ack.seq for each in published for ack in each.acks()]


def stored(folder: Path) -> list[Row]:
    tables = list(stream(folder).messages())
    rows = [row for table in tables for row in table.select(["seq", "payload"]).to_pylist()]
    return [(row["seq"], row["payload"].decode()) for row in rows]


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the openings of tables, by stream."""
    counts: Counter[str] = Counter()
    snapshot = DeltaStore.snapshot

    def counting(store: DeltaStore) -> Any:
        counts[store.stream] += 1
        return snapshot(store)

    monkeypatch.setattr(DeltaStore, "snapshot", counting)
    return counts


def test_the_table_is_opened_for_the_first_commit_only(
    tmp_path: Path, openings: Counter[str]
) -> None:
    orders = stream(tmp_path)
    assert publish(orders, *"abc") == [1, 2, 3]
    bucket = warehouse(tmp_path).kv("BENCH")
    assert [bucket.put("a", b"1"), bucket.put_all({"b": b"2"})[0], bucket.delete("a")] == [1, 2, 3]
    assert openings == {"ORDERS": 1, "KV_BENCH": 1}
    assert bucket.keys() == ["b"]


@pytest.mark.parametrize(
    ("more", "headers"),
    [
        ({}, {"Nats-Msg-Id": "1"}),
        ({}, {"Nats-Expected-Last-Sequence": "2"}),
        ({}, {"Nats-Expected-Last-Subject-Sequence": "2"}),
        ({"allow_rollup_hdrs": True}, {"Nats-Rollup": "sub"}),
        ({"discard": "new", "max_msgs": 9}, {}),
        ({"discard": "new", "max_bytes": "1KiB"}, {}),
        ({"allow_msg_counter": True}, {"Nats-Incr": "1"}),
    ],
)
def test_a_message_that_depends_on_stored_ones_opens_the_table(
    tmp_path: Path, openings: Counter[str], more: dict[str, Any], headers: dict[str, str]
) -> None:
    orders = stream(tmp_path, **more)
    first = headers if "allow_msg_counter" in more else {}
    payload = "" if first else "a"
    assert publish(orders, payload, payload, **first) == [1, 2]
    openings.clear()
    assert publish(orders, "" if first else "b", **headers) == [3]
    assert openings == {"ORDERS": 1}


def test_ids_of_commits_before_count_also_after_plain_ones(tmp_path: Path) -> None:
    orders = stream(tmp_path)
    publish(orders, "a", **{"Nats-Msg-Id": "1"})
    publish(orders, "b")
    assert publish(orders, "c", **{"Nats-Msg-Id": "1"}) == [1]
    assert publish(orders, "d") == [3]


def by_another(folder: Path) -> None:
    publish(stream(folder), "x", "y")


def by_another_at_once(folder: Path) -> None:
    stream(folder).publish([line("x"), line("y")])


def drop(folder: Path) -> None:
    stream(folder).drop().apply()


def drop_and_publish(folder: Path) -> None:
    drop(folder)
    by_another(folder)


def purge(folder: Path) -> None:
    stream(folder).purge().apply()


def delete(folder: Path) -> None:
    stream(folder).delete(2).apply()


def erase(folder: Path) -> None:
    stream(folder).erase(seqs=1, reason="asked for").apply()


def hold(folder: Path) -> None:
    warehouse(folder).hold("ORDERS", subject="orders.a", reason="a case")


def lower_limits(folder: Path) -> None:
    stream(folder, max_msgs=1).plan().apply()


def undo(folder: Path) -> None:
    lower_limits(folder)
    [run] = [run["run"] for run in stream(folder).history()]
    warehouse(folder).undo(run)


def listen(folder: Path) -> None:
    stream(folder).consumers.add({"durable_name": "billing", "ack_policy": "explicit"})


ACTS: Iterable[Callable[[Path], None]] = (
    *(by_another, by_another_at_once, drop, drop_and_publish, purge, delete, erase, hold),
    *(lower_limits, undo, listen),
)


@pytest.mark.parametrize("act", ACTS)
def test_an_act_of_another_process_between_two_publishes_counts(
    tmp_path: Path, act: Callable[[Path], None]
) -> None:
    orders = stream(tmp_path)
    publish(orders, "a", "b")
    act(tmp_path)
    before = [] if act is drop else stored(tmp_path)
    next_seq = 1 + (0 if act is drop else stream(tmp_path).state().last_seq)
    seqs = publish(orders, "c", "d")
    assert seqs == [next_seq, next_seq + 1]
    assert stored(tmp_path) == [*before, *zip(seqs, "cd", strict=True)]


def test_a_lost_commit_is_refused_and_counts_after_its_repair(tmp_path: Path) -> None:
    orders = stream(tmp_path)
    publish(orders, "a", "b")
    overwrite(warehouse(tmp_path), newest(warehouse(tmp_path)))
    with pytest.raises(LostCommitError):
        publish(orders, "c")
    stream(tmp_path).repair_lost_commits().apply()
    assert publish(orders, "c") == [3]
    assert stored(tmp_path) == [(1, "a"), (2, "b"), (3, "c")]


def test_a_lost_table_is_refused(tmp_path: Path) -> None:
    orders = stream(tmp_path)
    publish(orders, "a", "b")
    shutil.rmtree(tmp_path / "streams/ORDERS/messages")
    with pytest.raises(DamagedError):
        publish(orders, "c")


def test_messages_that_no_consumer_wants_use_sequences_and_new_consumers_are_seen(
    tmp_path: Path,
) -> None:
    wanted = {"retention": "interest", "unmatched": "remove", "subjects": ["orders.>"]}
    paid = {"durable_name": "paid", "filter_subject": "orders.paid", "ack_policy": "explicit"}
    orders = stream(tmp_path, **wanted, consumers=[paid])
    assert publish(orders, "a", "b") == [1, 2]
    assert stored(tmp_path) == []
    others = {"durable_name": "all", "ack_policy": "explicit"}
    stream(tmp_path, **wanted, consumers=[paid]).consumers.add(others)
    assert publish(orders, "c", "d") == [3, 4]
    assert stored(tmp_path) == [(3, "c"), (4, "d")]
