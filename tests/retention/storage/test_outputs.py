from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from retention.errors import UsageError
from retention.storage.outputs import (
    OutputKind,
    begins,
    check_output,
    is_stream,
    open_output,
    write_output,
)

LIST = OutputKind("a list", begins(r"\[list\]"))


@pytest.mark.parametrize("there", [None, b"", b"[list] of yesterday"])
def test_nothing_an_empty_file_and_an_earlier_one_are_replaced(
    tmp_path: Path, there: bytes | None
) -> None:
    file = tmp_path / "folder" / "out"
    if there is not None:
        file.parent.mkdir()
        file.write_bytes(there)
    check_output(str(file), LIST)
    write_output(str(file), LIST, b"[list] of today")
    assert file.read_bytes() == b"[list] of today"
    assert [path.name for path in file.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("there", [b"x", b"warehouse: .\n", b"\0" * 5000, b" [list]"])
def test_anything_else_stays(tmp_path: Path, there: bytes) -> None:
    file = tmp_path / "out"
    file.write_bytes(there)
    for write in (check_output, lambda place, kind: write_output(place, kind, b"[list]")):
        with pytest.raises(UsageError, match="holds something other than a list"):
            write(f"file://{file}", LIST)
    assert file.read_bytes() == there


def test_a_decoder_that_fails_has_not_recognized_its_kind(tmp_path: Path) -> None:
    def fails(_: object) -> bool:
        raise ValueError

    (tmp_path / "out").write_bytes(b"x")
    with pytest.raises(UsageError):
        check_output(str(tmp_path / "out"), OutputKind("a table", fails))


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        check_output(str(tmp_path), LIST)


def test_a_link_stays_and_permissions_do(tmp_path: Path) -> None:
    file, link = tmp_path / "out", tmp_path / "link"
    file.touch()
    file.chmod(0o640)
    link.symlink_to("out")
    write_output(str(link), LIST, b"[list]")
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"[list]", 0o640)


def test_a_link_to_nothing_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("out")
    write_output(str(tmp_path / "link"), LIST, b"[list]")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "out").read_bytes() == b"[list]"


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_output(str(pipe), LIST, b"[list]")
    reader.join()
    assert (got, pipe.is_fifo(), is_stream(str(pipe))) == ([b"[list]"], True, True)


def test_devices_stay(tmp_path: Path) -> None:
    write_output("/dev/null", LIST, b"[list]")
    assert Path("/dev/null").is_char_device()


def test_own_descriptors_go_on_where_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "out"
    with file.open("wb", buffering=0) as sink:
        sink.write(b"before ")
        check_output(f"/dev/fd/{sink.fileno()}", LIST)
        write_output(f"/dev/fd/{sink.fileno()}", LIST, b"[list]")
        sink.write(b", and more")
    assert file.read_bytes() == b"before [list], and more"


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_bytes(b"[list] of yesterday")
    with pytest.raises(TypeError), open_output(str(file), LIST) as sink:
        sink.writelines([b"[list] half", None])
    assert file.read_bytes() == b"[list] of yesterday"
    assert list(tmp_path.iterdir()) == [file]
