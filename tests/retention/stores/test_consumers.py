from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from retention.consumers.state import UNSEEN, Position, new_state
from retention.errors import BusyError, DamagedError
from retention.segments import Counters
from retention.stores import consumers
from retention.stores.consumers import DIRECTORY, IMPORTED, ConsumerRecord, ConsumerTable

BILLING = ConsumerRecord("billing", {"durable_name": "billing"}, new_state(1), revision=1)
NOBODY = Counters()


def created(found: ConsumerRecord | None) -> ConsumerRecord:
    return found or BILLING


def moved_to(seq: int) -> consumers.Change:
    """Floors only rise."""

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        assert found is not None
        floor = max(found.state.ack_floor.stream_seq, seq)
        position = Position(floor, floor)
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
    monkeypatch.setattr(consumers, "ATTEMPTS", 3)
    table.update("billing", created)
    numbers = iter(range(1, 9))

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        table.update("billing", moved_to(next(numbers)))
        assert found is not None
        return replace(found, folded={"acks": 1})

    with pytest.raises(BusyError, match="3 times another process"):
        table.update("billing", change)


@pytest.mark.parametrize("damage", ["", "{}", "[]", "bit", "other"])
def test_damage_is_refused_by_name(table: ConsumerTable, tmp_path: Path, damage: str) -> None:
    table.update("billing", created)
    [place] = (tmp_path / DIRECTORY / "billing").iterdir()
    said = place.read_text()
    damages = {"bit": said.replace('"stream_seq":0', '"stream_seq":9'), "other": said}
    place.write_text(damages.get(damage, damage))
    if damage == "other":
        place.rename(place.with_name(f"{2:020d}.json"))
    with pytest.raises(DamagedError, match=r"0\.json|[12]\.json: this record of consumer billing"):
        table.live(NOBODY)


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
