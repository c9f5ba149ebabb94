from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.errors import DamagedError, RefusedError, RetentionError, UsageError
from retention.formats.nats import backup as nats_backup
from retention.formats.nats import tar
from retention.formats.nats.backup import RAW_ROWS, read_backup, write_backup
from retention.formats.s2 import stream as s2

ROWS = pa.table(
    {
        "seq": [3, 5, 9],
        "subject": ["a", "b", "a"],
        "ts_ns": [30, 20, 10],
        "headers": [None, b"NATS/1.0\r\nA: b\r\n\r\n", None],
        "payload": [b"x", b"", b"yz"],
    },
    schema=RAW_ROWS,
)
FILE_BYTES = 3 * 30 + 3 + 3 + 4 + 18
MEMORY_BYTES = 3 * 16 + 3 + 3 + 18
STATE = {"messages": 3, "bytes": FILE_BYTES, "first_seq": 3, "last_seq": 12}
CONSUMER = {"config": {"durable_name": "c"}, "state": {"ack_floor": {"stream_seq": 4}}}


def written(
    path: Path, state: dict[str, Any] = STATE, rows: pa.Table = ROWS, **consumers: Any
) -> Path:
    write_backup(path, state, consumers, [rows.slice(0, 1), rows.slice(1)])
    return path


def all_rows(path: Path) -> pa.Table:
    return pa.concat_tables(read_backup(path).batches())


def test_a_backup_gives_back_what_was_written(tmp_path: Path) -> None:
    backup = read_backup(written(tmp_path / "ORDERS.backup", c=CONSUMER))
    assert backup.name == "ORDERS"
    assert backup.state == {**STATE, "consumer_count": 1}
    assert backup.consumers == {"c": CONSUMER}
    assert backup.config is None
    assert pa.concat_tables(backup.batches()).equals(ROWS)


def test_an_empty_stream_keeps_its_last_sequence(tmp_path: Path) -> None:
    state = {"messages": 0, "bytes": 0, "first_seq": 8, "last_seq": 7}
    backup = read_backup(written(tmp_path / "a", state, ROWS.slice(0, 0)))
    assert list(backup.batches()) == []
    assert backup.state["last_seq"] == 7


def test_batches_hold_the_rows_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar, "_PARSED_BYTES", 1)
    monkeypatch.setattr(s2, "_WRITTEN_BLOCK_BYTES", 30)
    path = written(tmp_path / "a")
    assert [table.num_rows for table in read_backup(path).batches(rows=3)] == [3]
    small = list(read_backup(path).batches(rows=1))
    assert len(small) > 1
    assert pa.concat_tables(small).equals(ROWS)
    monkeypatch.setattr(nats_backup, "_BATCH_BYTES", 1)
    assert list(read_backup(path).batches()) == small


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"messages": None}, "begins without a state.json"),
        ({"first_seq": 4}, "first_seq is 4 in state.json and 3 in the archive"),
        ({"first_seq": 0}, "says 3 messages in sequences 0 to 12, which no stream has"),
        ({"first_seq": 14, "messages": 0}, "says 0 messages in sequences 14 to 12"),
        ({"messages": 11}, "says 11 messages in sequences 3 to 12"),
    ],
)
def test_an_account_that_restore_refuses_is_refused(
    tmp_path: Path, change: dict[str, Any], problem: str
) -> None:
    path = written(tmp_path / "a", {**STATE, **change})
    with pytest.raises(DamagedError, match=problem) as refused:
        all_rows(path)
    assert (refused.value.exit_code, str(path) in str(refused.value)) == (6, True)


@pytest.mark.parametrize(
    ("counted", "consumers"), [(1, {}), (0, {"consumers/c": CONSUMER}), (None, {})]
)
def test_consumers_have_to_be_as_many_as_counted(
    tmp_path: Path, counted: int | None, consumers: dict[str, Any]
) -> None:
    path = tmp_path / "a"
    documents = {"state.json": {**STATE, "consumer_count": counted}, **consumers}
    with path.open("wb") as file:
        s2.write_frames(file, tar.encode(documents, [ROWS]))
    with pytest.raises(DamagedError, match=f"consumer_count is {counted} in state.json"):
        read_backup(path)


def test_messages_that_differ_from_the_account_are_read(tmp_path: Path) -> None:
    change = {"messages": 7, "bytes": 1, "first_seq": 1, "last_seq": 8}
    assert all_rows(written(tmp_path / "a", {**STATE, **change})).equals(ROWS)


@pytest.mark.parametrize(
    ("seqs", "problem"),
    [
        ([3, 3, 9], "sequence 3 follows sequence 3"),
        ([3, 5, 4], "sequence 4 follows sequence 5"),
        ([3, 0, 4], "sequence 0 follows"),
    ],
)
def test_sequences_that_do_not_rise_are_refused(
    tmp_path: Path, seqs: list[int], problem: str
) -> None:
    path = written(tmp_path / "a", rows=ROWS.set_column(0, RAW_ROWS[0], pa.array(seqs)))
    with pytest.raises(DamagedError, match=problem):
        all_rows(path)


def test_a_subject_that_is_not_text_is_refused(tmp_path: Path) -> None:
    subjects = pa.array([b"a", b"\xff", b"c"])
    rows = ROWS.set_column(1, "subject", subjects)
    with pytest.raises(RefusedError, match=r"the subject b'\\xff' of sequence 5 is not UTF-8"):
        all_rows(written(tmp_path / "a", rows=rows))


def test_a_file_cut_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DamagedError, match="ends within a chunk"):
        read_backup(path)


def test_a_directory_of_the_nats_command_is_a_backup(tmp_path: Path) -> None:
    directory = tmp_path / "somewhere"
    directory.mkdir()
    written(directory / "stream.tar.s2", {**STATE, "bytes": MEMORY_BYTES})
    assert read_backup(directory).name == "somewhere"
    config = {"name": "ORDERS", "storage": "memory"}
    (directory / "backup.json").write_text(json.dumps({"config": config, "state": {}}))
    backup = read_backup(directory)
    assert (backup.name, backup.config) == ("ORDERS", config)
    assert pa.concat_tables(backup.batches()).equals(ROWS)
    (directory / "backup.json").write_text("[]")
    with pytest.raises(DamagedError, match="not a JSON object"):
        read_backup(directory)


def test_a_directory_without_one_archive_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no file beside"):
        read_backup(tmp_path)
    with pytest.raises(UsageError, match="no such file"):
        read_backup(tmp_path / "missing")


@pytest.mark.parametrize(
    "documents", [{}, {"other.json": {}}, {"state.json": []}, {"state.json": STATE, "x": {}}]
)
def test_documents_that_do_not_belong_are_refused(
    tmp_path: Path, documents: dict[str, Any]
) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        s2.write_frames(file, tar.encode(documents, [ROWS]))
    with pytest.raises(RetentionError) as refused:
        read_backup(path)
    assert refused.value.exit_code == 6
