"""An id counts until the end of its window, regardless of its message."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.message_rows import message_sizes
from retention.core.units import MINUTE, SECOND
from retention.datafile.subject_digest import SubjectDigest, pack, unpack
from retention.errors import DamagedError, RefusedError, UsageError
from retention.formats.nats.backup import RAW_ROWS, write_backup
from retention.stores import kept_ids

NOW = 1_800_000_000 * SECOND


@pytest.fixture(params=["delta", "parquet"])
def format_(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class World:
    """A warehouse with one stream, and its clock."""

    def __init__(self, folder: Path, format_: str = "delta", **limits: Any) -> None:
        self.folder, self.now_ns = folder, NOW
        stream = {"name": "S", "subjects": ["s.>"], "no_ack": True, **limits}
        config = {"warehouse": ".", "defaults": {"format": format_}, "streams": [stream]}
        (folder / "retention.yaml").write_text(json.dumps(config), encoding="utf-8")

    @property
    def warehouse(self) -> Warehouse:
        place = self.folder / "retention.yaml"
        return open_warehouse(place, engine="local", clock=lambda: self.now_ns)

    @property
    def stream(self) -> Stream:
        return self.warehouse.new_stream("S")

    @property
    def ids(self) -> list[Path]:
        return sorted((self.folder / "streams/S/_retention/ids").glob("*.parquet"))

    def publish(self, *messages: dict[str, Any]) -> list[tuple[int, bool]]:
        lines = [json.dumps({"subject": "s.a"} | message).encode() for message in messages]
        return [(ack.seq, ack.duplicate) for ack in self.stream.publish(lines).acks()]

    def apply(self) -> Any:
        [outcome] = self.warehouse.apply()
        assert outcome.value is not None, outcome.sentence
        return outcome.value

    def data(self) -> list[bytes]:
        return [row["payload"] for table in self.stream.messages() for row in table.to_pylist()]


def named(msg_id: str, data: str = "x", **more: Any) -> dict[str, Any]:
    headers = {"Nats-Msg-Id": msg_id, **more.pop("headers", {})}
    return {"data": data, "headers": headers, **more}


def test_a_retry_does_not_bring_an_old_value_back(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path, format_, max_msgs_per_subject=1)
    world.publish(named("1", "old"))
    world.publish(named("2", "new"))
    assert world.apply().removed_messages == 1
    assert world.publish(named("1", "old")) == [(1, True)]
    world.apply()
    assert world.data() == [b"new"]


def test_what_is_removed_by_hand_or_brought_back_counts_as_well(
    tmp_path: Path, format_: str
) -> None:
    world = World(tmp_path, format_)
    world.publish(*(named(str(n)) for n in range(1, 7)))
    world.stream.delete(2).apply()
    report = world.stream.purge(keep=2).apply()
    retries = [named(str(n)) for n in range(1, 7)]
    answered = [(n, True) for n in range(1, 7)]
    assert world.publish(*retries) == answered
    world.warehouse.undo(report.run)
    assert world.publish(*retries) == answered
    # Only a digest of an id is stored.
    assert all(b"Nats" not in place.read_bytes() for place in world.ids)


def test_a_saved_plan_keeps_what_it_removes(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path, format_, max_msgs=1)
    world.publish(named("1"), named("2"), named("3"))
    world.stream.plan().apply()
    assert world.publish(named("1"), named("2"), named("3")) == [(1, True), (2, True), (3, True)]


def test_the_window_is_counted_from_the_first_message_and_not_from_the_retry(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, max_msgs_per_subject=1)
    world.publish(named("1"), named("2"))
    world.apply()
    world.now_ns += 2 * MINUTE - 1
    assert world.publish(named("1")) == [(1, True)]
    world.now_ns += 1
    assert world.publish(named("1")) == [(3, False)]


def test_ids_whose_window_is_over_are_neither_kept_nor_read(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs=1)
    world.publish(named("1"))
    world.publish(named("2"))
    world.apply()
    assert len(world.ids) == 1
    world.now_ns += 3 * MINUTE
    world.publish(named("3"))
    assert world.apply().files_read == 0
    assert world.ids == []


@pytest.mark.parametrize("offset", [-(10**9) * SECOND, 10**9 * SECOND], ids=["past", "future"])
def test_times_that_are_not_the_clocks_count_too(tmp_path: Path, offset: int) -> None:
    """A message of another age is published first: neither it nor a wrong clock drops ids."""
    world = World(tmp_path, max_msgs_per_subject=1)
    at = NOW + offset
    world.publish({"subject": "s.b", "ts_ns": min(at, NOW)})
    world.publish(named("1", ts_ns=at), named("2", ts_ns=at + SECOND))
    world.now_ns = NOW + 10**9 * SECOND if offset < 0 else NOW
    world.stream.purge("s.b").apply()
    world.now_ns = max(NOW, at)
    world.apply()
    assert world.publish(named("1", ts_ns=at + SECOND)) == [(2, True)]


def test_a_message_from_the_future_makes_no_other_forgotten(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs_per_subject=1)
    world.publish({"subject": "s.b", "ts_ns": NOW + 10**9 * SECOND}, named("1"), named("2"))
    world.apply()
    assert world.publish(named("1")) == [(2, True)]


def test_records_are_put_together_when_there_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_ids, "MOST_RECORDS", 3)
    world = World(tmp_path, max_msgs=1)
    count = 6
    for number in range(1, count + 1):
        world.now_ns += 1
        world.publish(named(str(number)))
        world.apply()
    assert len(world.ids) <= 3
    retries = [named(str(number)) for number in range(1, count + 1)]
    assert world.publish(*retries) == [(number, True) for number in range(1, count + 1)]


def test_no_file_is_opened_for_ids_that_are_not_there(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path, format_, max_msgs=2, segment_span="1s")
    for second in range(4):
        world.publish({"ts_ns": NOW + second * SECOND})
    assert world.apply().files_read == 0
    assert world.ids == []
    world.publish(named("5", ts_ns=NOW + 4 * SECOND), {"ts_ns": NOW + 5 * SECOND})
    world.publish({"ts_ns": NOW + 6 * SECOND}, {"ts_ns": NOW + 7 * SECOND})
    world.now_ns += 8 * SECOND
    assert world.apply().removed_messages == 4
    assert world.publish(named("5")) == [(5, True)]


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "of an earlier version"])
def test_what_is_not_known_of_a_file_is_read(tmp_path: Path, *, lost: bool) -> None:
    world = World(tmp_path, max_msgs=1, segment_span="1s")
    world.publish(named("1"), named("2", ts_ns=NOW + SECOND))
    for digest in (tmp_path / "streams/S/_retention/subjects").rglob("*.parquet"):
        counts = unpack(digest.read_bytes()).counts
        digest.unlink() if lost else digest.write_bytes(pack(SubjectDigest(counts)))
    assert world.apply().files_read == 1
    assert world.publish(named("1")) == [(1, True)]


def test_what_a_roll_up_takes_of_its_own_batch_counts(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path, format_, allow_rollup_hdrs=True)
    world.publish(named("0", subject="s.b"), named("1"))
    asking = {"Nats-Rollup": "sub"}
    world.publish(named("2"), named("3", headers=asking))
    assert world.publish(named("1"), named("2"), named("3")) == [(2, True), (3, True), (4, True)]
    world.publish(named("4"), named("5", headers={"Nats-Rollup": "all"}))
    answered = [(seq, True) for seq in range(1, 7)]
    assert world.publish(*(named(str(n)) for n in range(6))) == answered


def test_what_nobody_wants_counts_when_it_is_published_again(tmp_path: Path, format_: str) -> None:
    consumer = {"durable_name": "c", "filter_subject": "s.b", "ack_policy": "explicit"}
    world = World(tmp_path, format_, retention="interest", unmatched="remove", consumers=[consumer])
    assert world.publish(named("1")) == [(1, False)]
    assert world.publish(named("1"), named("2")) == [(1, True), (2, False)]
    world.now_ns += 2 * MINUTE - 1
    assert world.publish(named("3"), named("2")) == [(3, False), (2, True)]
    world.now_ns += 1
    assert world.publish(named("1"), named("3")) == [(4, False), (3, True)]
    assert world.publish(named("1"), named("2"))[0] == (4, True)


def test_what_was_answered_and_not_committed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, allow_rollup_hdrs=True)
    world.publish({"data": "x"})
    stream = world.stream
    with monkeypatch.context() as broken:
        broken.setattr(
            type(stream.opened.store),
            "commit",
            lambda *_: (_ for _ in ()).throw(RefusedError("no")),
        )
        batch = [named("1"), named("2", headers={"Nats-Rollup": "sub"})]
        with pytest.raises(RefusedError):
            stream.publish([json.dumps({"subject": "s.b"} | one).encode() for one in batch])
    assert world.publish({"data": "y"}, named("1")) == [(2, False), (3, False)]


def test_ids_of_another_table_do_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs=1)
    world.publish(named("1"), named("2"))
    world.apply()
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "streams/S/_retention/ids", kept)
    shutil.rmtree(tmp_path / "streams")
    shutil.rmtree(tmp_path / "runs")
    world.publish({"data": "x"})
    shutil.copytree(kept, tmp_path / "streams/S/_retention/ids")
    assert world.publish(named("1")) == [(2, False)]


def test_ids_of_an_imported_backup_count(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path, format_, max_msgs=1)
    block = b"NATS/1.0\r\nNats-Msg-Id: 7\r\n\r\n"
    columns = {"subject": ["s.a", "s.a"], "headers": [block, None], "payload": [b"x", b"y"]}
    rows = pa.table({"seq": [7, 8], **columns, "ts_ns": [NOW, NOW]}, schema=None)
    rows = rows.select(RAW_ROWS.names).cast(RAW_ROWS)
    total = sum(
        message_sizes(rows["subject"], rows["headers"], rows["payload"], "file").to_pylist()
    )
    state = {"messages": 2, "first_seq": 7, "last_seq": 8, "bytes": total}
    write_backup(tmp_path / "S.arc", state, {}, [rows])
    world.stream.import_nats_backup(tmp_path / "S.arc")
    assert world.publish(named("7")) == [(7, True)]
    world.apply()
    assert world.publish(named("7")) == [(7, True)]


def test_the_last_id_is_that_of_the_last_message_also_when_it_is_removed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(named("1"), named("2"))
    world.stream.delete(2).apply()
    with pytest.raises(RefusedError, match="10070"):
        world.publish({"headers": {"Nats-Expected-Last-Msg-Id": "1"}})
    assert world.publish({"headers": {"Nats-Expected-Last-Msg-Id": "2"}}) == [(3, False)]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs=1)
    world.publish(named("1"), named("2"))
    world.apply()
    [record] = world.ids
    record.write_bytes(record.read_bytes()[:-20])
    with pytest.raises(
        DamagedError, match=f"{record.name}: this record of message ids of stream S"
    ):
        world.publish(named("1"))


def test_no_writer_takes_the_name_under_which_records_are_counted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reserved for the engine"):
        World(tmp_path).stream.publish([b'{"subject": "s.a"}'], "retention/unstored-ids", 1)
