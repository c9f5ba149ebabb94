from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.errors import DamagedError, RefusedError, UsageError
from retention.formats.nats import tar
from retention.formats.nats.backup import RAW_ROWS, Backup, read_backup
from retention.inspect import nats_export
from retention.inspect.messages import columns_in_order
from retention.stores.consumer_table import DIRECTORY, IMPORTED
from tests.retention.ingest.test_import_nats import CONSUMER, messages
from tests.retention.ingest.test_import_nats import backup as backup_of
from tests.support.sandboxes import ORDERS, lines, opened

NOTHING = "0001-01-01T00:00:00Z"


@pytest.fixture(params=["delta", "parquet"])
def stream(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    """An empty stream with a new segment for every few messages."""
    found = opened(tmp_path / "first", ORDERS, format=request.param, segment_size=120)
    return found.new_stream("ORDERS")


def rows_of(backup: Backup) -> pa.Table:
    return pa.concat_tables([RAW_ROWS.empty_table(), *backup.batches()])


def exported(stream: Stream, folder: Path, name: str = "out.arc") -> Backup:
    return read_backup(stream.export_nats_backup(folder / name).file)


def test_import_then_export_is_the_identity(stream: Stream, tmp_path: Path) -> None:
    given = read_backup(backup_of(tmp_path, messages(3, 4, 6, 9, 12, 15), CONSUMER, last_seq=17))
    stream.import_nats_backup(given.path)
    once = exported(stream, tmp_path)
    assert rows_of(once).equals(rows_of(given))
    assert once.consumers == CONSUMER
    assert given.state.items() <= once.state.items()
    again = opened(tmp_path / "second", ORDERS).new_stream("ORDERS")
    again.import_nats_backup(once.path)
    twice = exported(again, tmp_path, "twice.arc")
    assert twice.path.read_bytes() == once.path.read_bytes()


def test_the_state_is_the_brokers_account(stream: Stream, tmp_path: Path) -> None:
    stream.import_nats_backup(backup_of(tmp_path, messages(3, 4, 6), last_seq=9))
    state = exported(stream, tmp_path).state
    assert state == {
        "messages": 3,
        "bytes": stream.state().bytes,
        "first_seq": 3,
        "first_ts": "1970-01-01T00:00:01.000000004Z",
        "last_seq": 9,
        "last_ts": "1970-01-01T00:00:01.000000001Z",
        "num_subjects": 2,
        "num_deleted": 4,
        "consumer_count": 0,
    }


def test_what_a_pass_removed_is_not_in_it(stream: Stream, tmp_path: Path) -> None:
    of_days = {**ORDERS, "format": stream.opened.config.format, "segment_size": "1MiB"}
    stream = opened(tmp_path / "second", of_days).stream("ORDERS")
    stream.publish(lines(240))
    removed = stream.plan().apply().removed_messages
    assert 0 < removed < 240
    backup = exported(stream, tmp_path)
    assert rows_of(backup)["seq"].to_pylist() == list(range(removed + 1, 241))
    assert (backup.state["messages"], backup.state["first_seq"]) == (240 - removed, removed + 1)


def test_a_stream_that_is_empty_keeps_its_last_sequence(stream: Stream, tmp_path: Path) -> None:
    never = exported(stream, tmp_path, "never.arc")
    assert (never.state["first_seq"], never.state["last_seq"]) == (1, 0)
    stream.import_nats_backup(backup_of(tmp_path, messages(), first_seq=42, last_seq=41))
    backup = exported(stream, tmp_path)
    assert list(backup.batches()) == []
    assert (backup.state["first_seq"], backup.state["last_seq"]) == (42, 41)
    assert (backup.state["first_ts"], backup.state["last_ts"]) == (NOTHING, NOTHING)


def test_the_configuration_lies_beside_it(stream: Stream, tmp_path: Path) -> None:
    stream.publish(lines(3))
    told = stream.export_nats_backup(tmp_path / "out.arc")
    request = json.loads(Path(told.request).read_text())
    assert told.request == str(tmp_path / "out.arc.json")
    assert request["state"] == read_backup(told.file).state
    assert request["config"].items() >= {"name": "ORDERS", "subjects": ["orders.>"]}.items()
    assert not request["config"].keys() & {"format", "grace", "segment_size", "whole_segments"}


def test_a_directory_is_one_of_the_nats_command(stream: Stream, tmp_path: Path) -> None:
    stream.publish(lines(3))
    told = stream.export_nats_backup(f"{tmp_path}/new/")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"backup.json", "stream.tar.s2"}
    backup = read_backup(tmp_path / "new")
    assert (backup.name, rows_of(backup).num_rows, told.messages) == ("ORDERS", 3, 3)
    (tmp_path / "there").mkdir()
    stream.export_nats_backup(tmp_path / "there")
    assert rows_of(read_backup(tmp_path / "there")).num_rows == 3


@pytest.mark.parametrize("name", ["out.arc", "out.arc.json"])
def test_nothing_is_overwritten(stream: Stream, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=rf"{name}: holds something other than"):
        stream.export_nats_backup(tmp_path / "out.arc")
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.glob("out*"))) == 1


def test_a_backup_is_not_overwritten_by_another(stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "out.arc").touch()
    stream.export_nats_backup(tmp_path / "out.arc")
    before = (tmp_path / "out.arc").read_bytes()
    with pytest.raises(RefusedError, match=r"out.arc: already exists"):
        stream.export_nats_backup(tmp_path / "out.arc")
    assert (tmp_path / "out.arc").read_bytes() == before


def test_a_place_that_is_none_is_refused(stream: Stream) -> None:
    with pytest.raises(UsageError, match=r"'ftp://[^']*' is neither a path nor s3"):
        stream.export_nats_backup("ftp://host/out.arc")


def test_a_damaged_file_leaves_nothing(stream: Stream, tmp_path: Path) -> None:
    stream.publish(lines(12))
    store = stream.opened.store
    files = store.data_files(store.inventory(store.snapshot()).files)
    location = Path(files[-1].location)
    location.write_bytes(b"\0" * location.stat().st_size)
    with pytest.raises(DamagedError):
        stream.export_nats_backup(tmp_path / "out" / "x.arc")
    assert list((tmp_path / "out").iterdir()) == []


def test_messages_that_are_missing_leave_nothing(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.publish(lines(12))
    whole = columns_in_order

    def without_the_last(*arguments: Any) -> Iterator[pa.Table]:
        return iter(list(whole(*arguments))[:-1])

    monkeypatch.setattr(nats_export, "columns_in_order", without_the_last)
    with pytest.raises(DamagedError, match="its statistics count 12"):
        stream.export_nats_backup(tmp_path / "out" / "x.arc")
    assert list((tmp_path / "out").iterdir()) == []


def test_bytes_are_those_of_the_streams_storage(stream: Stream, tmp_path: Path) -> None:
    stream.import_nats_backup(backup_of(tmp_path, messages(3, 4, 6)))
    memory = {**ORDERS, "storage": "memory", "format": stream.opened.config.format}
    backup = exported(opened(tmp_path / "first", memory).stream("ORDERS"), tmp_path)
    assert sum(table.num_rows for table in backup.batches()) == 3
    assert backup.state["bytes"] < stream.state().bytes


def test_consumers_of_an_import_that_was_never_committed_are_none(
    stream: Stream, tmp_path: Path
) -> None:
    stream.publish(lines(3))
    kept = Path(stream.opened.root) / DIRECTORY / IMPORTED
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps({"sha256": "f" * 64, "consumers": CONSUMER}))
    assert exported(stream, tmp_path).consumers == {}


@pytest.mark.parametrize("content", ["", "[]", '{"consumers": {}}'])
def test_consumers_that_cannot_be_read_are_named(
    stream: Stream, tmp_path: Path, content: str
) -> None:
    stream.import_nats_backup(backup_of(tmp_path, messages(1), CONSUMER))
    (Path(stream.opened.root) / DIRECTORY / IMPORTED).write_text(content)
    with pytest.raises(DamagedError, match=r"imported\.json: cannot be read"):
        stream.export_nats_backup(tmp_path / "out.arc")


def test_large_tables_are_copied_in_slices(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.import_nats_backup(backup_of(tmp_path, messages(*range(1, 13))))
    plain = exported(stream, tmp_path, "plain.arc").path.read_bytes()
    monkeypatch.setattr(tar, "_PARSED_BYTES", 50)
    assert exported(stream, tmp_path).path.read_bytes() == plain
