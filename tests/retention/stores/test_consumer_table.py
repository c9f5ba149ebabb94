from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from retention.consumers.state import (
    OPEN,
    PENDING,
    REDELIVERED,
    UNSEEN,
    ConsumerState,
    DeliveryPosition,
    new_state,
)
from retention.core.counters import Counters
from retention.errors import BusyError, DamagedError
from retention.stores import consumer_table
from retention.stores.consumer_table import DIRECTORY, IMPORTED, ConsumerRecord, ConsumerTable

BILLING = ConsumerRecord("billing", {"durable_name": "billing"}, new_state(1), revision=1)
NOBODY = Counters()


def created(found: ConsumerRecord | None) -> ConsumerRecord:
    return found or BILLING


def moved_to(seq: int) -> consumer_table.Change:
    """Move a consumer; floors never fall."""

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        assert found is not None
        floor = max(found.state.ack_floor.stream_seq, seq)
        position = DeliveryPosition(floor, floor)
        return replace(found, state=replace(found.state, ack_floor=position, delivered=position))

    return change


@pytest.fixture
def table(tmp_path: Path) -> ConsumerTable:
    return ConsumerTable(str(tmp_path))


def test_a_record_comes_back_as_it_was_written(table: ConsumerTable) -> None:
    unseen = pa.table([[3], [4], [7], [9]], schema=UNSEEN)
    state = replace(new_state(7), last_active_ns=123, unseen=unseen)
    told = replace(BILLING, state=state, folded={"acks.jsonl": 4}, origin="nats-backup/x")
    written = table.update("billing", lambda _: told)
    assert written == replace(told, version=1)
    assert table.read("billing") == written


def test_a_change_that_changes_nothing_writes_nothing(table: ConsumerTable, tmp_path: Path) -> None:
    assert table.update("billing", created).version == 1
    assert table.update("billing", created).version == 1
    assert len(list((tmp_path / DIRECTORY / "billing").iterdir())) == 1


def test_names_are_those_that_a_server_allows(table: ConsumerTable) -> None:
    for name in ("räume", "A%20", "_", "x-1"):
        table.update(name, lambda _, name=name: replace(BILLING, consumer=name))  # type: ignore[misc]
    assert [one.consumer for one in table.live(NOBODY)] == sorted(["räume", "A%20", "_", "x-1"])


def test_a_deleted_consumer_is_a_version_and_not_there(table: ConsumerTable) -> None:
    table.update("billing", created)
    gone = table.update("billing", lambda found: replace(found or BILLING, deleted=True))
    assert (gone.version, table.live(NOBODY)) == (2, [])
    assert table.read("billing") == gone


def test_no_change_of_many_writers_is_lost(table: ConsumerTable, tmp_path: Path) -> None:
    table.update("billing", created)

    def fold(number: int) -> None:
        own = ConsumerTable(str(tmp_path))

        def change(found: ConsumerRecord | None) -> ConsumerRecord:
            assert found is not None
            return replace(found, folded={**found.folded, str(number): number})

        own.update("billing", change)

    writers = [threading.Thread(target=fold, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = table.read("billing")
    assert found is not None
    assert found.folded == {str(number): number for number in range(8)}


def test_a_rival_who_comes_first_is_built_upon(table: ConsumerTable) -> None:
    table.update("billing", created)
    rivals = [moved_to(5)]

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        if rivals:
            table.update("billing", rivals.pop())
        assert found is not None
        return replace(found, folded={"acks": 1})

    told = table.update("billing", change)
    assert (told.version, told.folded, told.state.ack_floor.stream_seq) == (3, {"acks": 1}, 5)


def test_rivals_who_keep_coming_first_are_named(
    table: ConsumerTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_table, "ATTEMPTS", 3)
    table.update("billing", created)
    numbers = iter(range(1, 9))

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        table.update("billing", moved_to(next(numbers)))
        assert found is not None
        return replace(found, folded={"acks": 1})

    with pytest.raises(BusyError, match="3 times another process"):
        table.update("billing", change)


@pytest.mark.parametrize("damage", ["", "{}", "[]", "other"])
def test_damage_is_refused_by_name(table: ConsumerTable, tmp_path: Path, damage: str) -> None:
    table.update("billing", created)
    [place] = (tmp_path / DIRECTORY / "billing").iterdir()
    place.write_text(place.read_text() if damage == "other" else damage)
    if damage == "other":
        place.rename(place.with_name(f"{2:020d}.json"))
    with pytest.raises(DamagedError, match=r"[12]\.json: this record of consumer billing"):
        table.live(NOBODY)


def test_no_flipped_bit_is_believed(table: ConsumerTable, tmp_path: Path) -> None:
    table.update("billing", created)
    [place] = (tmp_path / DIRECTORY / "billing").iterdir()
    whole = place.read_bytes()
    for number in range(40):
        bit = number * 8 * len(whole) // 40 + number % 8
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        place.unlink()
        place.write_bytes(flipped)
        with pytest.raises(DamagedError, match="this record of consumer billing cannot be read"):
            table.read("billing")


EARLIER = (
    '{"consumer":"billing","config":{"durable_name":"billing"},"state":{"delivered":{"consumer_seq":6,"stream_seq":5},'
    '"ack_floor":{"consumer_seq":2,"stream_seq":2},"pending":{"3":{"Sequence":3,"Timestamp":10},"5":{"Sequence":5,'
    '"Timestamp":12}},"redelivered":{"1":4,"3":1}},"version":1,"revision":1,"counted":true,"deleted":false,'
    '"origin":null,"folded":{"acks.jsonl":4},"changes":{"a":7},"unseen":{"first":[4],"last":[4],"after":[3],"before":'
    '[9223372036854775807]},"last_active_ns":99,"check":'
    '"f66c75ef8f27b5adc1e0216f5c949a8e8489962cc58f0db4873f778e2f217fde"}'
)
"""A record with a state in JSON, of an earlier version."""


def test_a_record_of_an_earlier_version_is_read_and_built_upon(
    table: ConsumerTable, tmp_path: Path
) -> None:
    place = tmp_path / DIRECTORY / "billing" / f"{1:020d}.json"
    place.parent.mkdir(parents=True)
    place.write_text(EARLIER)
    state = ConsumerState(
        DeliveryPosition(6, 5),
        DeliveryPosition(2, 2),
        pa.table([[3, 5], [3, 5], [10, 12]], schema=PENDING),
        pa.table([[1, 3], [4, 1]], schema=REDELIVERED),
        pa.table([[4], [4], [3], [OPEN]], schema=UNSEEN),
        last_active_ns=99,
    )
    found = table.read("billing")
    assert found is not None
    assert (found.state, found.folded, found.changes) == (state, {"acks.jsonl": 4}, {"a": 7})
    after = table.update("billing", lambda record: replace(record or BILLING, revision=2))
    assert (after.version, after.state, table.read("billing")) == (2, state, after)
    place.write_text(EARLIER.replace('"3":1}', '"3":2}'))
    place.with_name(f"{2:020d}.json").unlink()
    with pytest.raises(DamagedError, match="it is not what was written"):
        table.read("billing")


def test_consumers_that_an_earlier_version_kept_are_read_and_updated(
    table: ConsumerTable, tmp_path: Path
) -> None:
    state = BILLING.state.as_json()
    kept = {"sha256": "f" * 64, "consumers": {"billing": {"config": {}, "state": state}}}
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / IMPORTED).write_text(json.dumps(kept))
    assert table.live(NOBODY) == []
    committed = Counters(batches={"nats-backup/" + "f" * 64: 1})
    assert [one.version for one in table.live(committed)] == [0]
    table.update("billing", moved_to(5))
    [record] = table.live(committed)
    assert (record.version, record.state.ack_floor.stream_seq) == (1, 5)
    table.update("billing", lambda found: replace(found or BILLING, deleted=True))
    assert table.live(committed) == []
