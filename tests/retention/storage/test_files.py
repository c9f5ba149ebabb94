"""File operations: atomic, durable, and with exactly one winner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from retention.errors import StorageError
from retention.storage import files


def test_a_file_appears_whole(tmp_path: Path) -> None:
    place = str(tmp_path / "deep" / "down" / "file")
    with files.create(place) as sink:
        sink.write(b"one")
        assert files.length(place) is None
        assert files.names(str(tmp_path / "deep" / "down")) == []
    assert files.read_bytes(place) == b"one"
    files.replace(place, b"two")
    assert files.read_bytes(place) == b"two"


def test_files_put_together_are_durable_by_one_sync_of_their_directory_behind_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_when_synced = []

    def synced(directory: str) -> None:
        there_when_synced.append(files.names(directory))

    place = str(tmp_path / "records")
    files.make_directory(place)
    monkeypatch.setattr(files, "sync_directory", synced)
    files.replace_all(place, {"one": [b"1"], "two": [b"", b"2"]})
    assert there_when_synced == [["one", "two"]]
    assert files.read_bytes(f"{place}/two") == b"2"


def test_if_one_of_the_files_put_together_fails_none_appears(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"half"
        raise OSError("No space left on device")

    place = str(tmp_path / "records")
    with pytest.raises(StorageError, match="records/two"):
        files.replace_all(place, {"one": [b"1"], "two": failing()})
    assert list(Path(place).iterdir()) == []


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "file")

    def fail() -> None:
        with files.create(place) as sink:
            sink.write(b"half")
            raise OSError("No space left on device")

    files.replace(place, b"old")
    with pytest.raises(OSError, match="No space"):
        fail()
    assert files.read_bytes(place) == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_of_many_who_create_exactly_one_wins(tmp_path: Path) -> None:
    place = str(tmp_path / "log" / "1.json")
    wins: list[int] = []
    gate = threading.Barrier(8)

    def create(number: int) -> None:
        gate.wait()
        if files.create_if_absent(place, str(number).encode() * 1000):
            wins.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert files.read_bytes(place) == str(wins[0]).encode() * 1000
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["1.json"]


def test_what_is_missing_is_told_and_not_raised(tmp_path: Path) -> None:
    place = str(tmp_path / "nothing")
    assert files.length(place) is None
    assert files.length(place + "/below") is None
    assert files.read_bytes(place) is None
    assert files.names(place) == []
    assert files.lengths([place, __file__])[0] is None
    files.delete([place])
    with pytest.raises(FileNotFoundError):
        files.stat(place)


def test_a_file_that_cannot_be_read_to_its_end_is_named() -> None:
    with pytest.raises(StorageError, match="/proc/self/mem: Input/output error"):
        list(files.chunks("/proc/self/mem", 10))


def test_moves_that_were_made_before_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    pairs = [(str(tmp_path / "gone"), str(tmp_path / "x" / "gone"))]
    pairs += [(str(tmp_path / "a"), str(tmp_path / "x" / "a"))]
    files.move(pairs)
    files.move(pairs)
    assert files.names(str(tmp_path / "x")) == ["a"]


def test_plain_http_is_allowed_only_where_the_endpoint_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert "AWS_ALLOW_HTTP" not in files.storage_options()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:5000")
    options = files.storage_options()
    assert options["AWS_ALLOW_HTTP"] == "true"
    assert options["aws_conditional_put"] == "etag"
    assert options["AWS_REGION"] == "us-east-1"
