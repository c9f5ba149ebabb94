"""The ids of recent files are read once, and follow the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention import open_warehouse
from retention.context import message_ids
from retention.core.inventory import DataFile
from retention.datafile.parquet import read_columns


@pytest.fixture
def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are opened for their ids, in order."""
    opened: list[str] = []
    read = read_columns

    def noted(file: DataFile, columns: tuple[str, ...]) -> object:
        opened.append(file.path)
        return read(file, columns)

    monkeypatch.setattr(message_ids, "read_columns", noted)
    return opened


def _published(directory: Path, *ids: str) -> list[tuple[int, bool]]:
    stream = open_warehouse(directory).stream("ORDERS")
    return [
        (ack.seq, ack.duplicate)
        for number in ids
        for ack in stream.publish(
            [{"subject": "orders.a", "payload": "x", "headers": {"Nats-Msg-Id": number}}]
        ).acks()
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    config = "defaults: {format: parquet}\nstreams: [{name: ORDERS, subjects: [orders.>]}]\n"
    (tmp_path / "retention.yaml").write_text(config)
    return tmp_path


def test_each_file_is_opened_once(directory: Path, opened_files: list[str]) -> None:
    answers = _published(directory, "a", "b", "a", "c", "b")
    assert answers == [(1, False), (2, False), (1, True), (3, False), (2, True)]
    assert len(opened_files) == len(set(opened_files)) == 3


def test_ids_that_are_too_many_to_keep_are_read_again(
    directory: Path, opened_files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ids, "MOST_IN_MEMORY", 1)
    assert _published(directory, "a", "b", "c", "a") == [
        (1, False),
        (2, False),
        (3, False),
        (1, True),
    ]
    assert len(opened_files) > len(set(opened_files))


def test_ids_of_compacted_files_are_known_after_it(directory: Path) -> None:
    stream = open_warehouse(directory).stream("ORDERS")
    line = {"subject": "orders.a", "payload": "x", "headers": {"Nats-Msg-Id": "a"}}
    others = [{**line, "headers": {"Nats-Msg-Id": f"b{number}"}} for number in range(3)]
    for each in (line, *others):
        stream.publish([each])
    open_warehouse(directory).stream("ORDERS").compact().apply()
    assert [(ack.seq, ack.duplicate) for ack in stream.publish([line]).acks()] == [(1, True)]
