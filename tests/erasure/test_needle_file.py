"""The needle file gives back what was written, to its key alone, and is gone once it is destroyed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from retention.erasure import needle_file
from retention.erasure.needle_file import (
    NeedleFile,
    destroy_needles,
    new_key,
    read_needles,
    write_needles,
)
from retention.erasure.needles import Needles, needles_of_rows
from retention.errors import DamagedError
from retention.storage import local

SUBJECT = "customer.0000000017"


def content_of(subjects: list[str]) -> NeedleFile:
    needles = needles_of_rows([pa.table({"subject": [*subjects, "short"]})])
    return NeedleFile({"subjects": subjects, "seqs": [3, 2**63]}, "GDPR, case 4711 \u00e9", needles)


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "needles"


def same(left: Needles, right: Needles) -> bool:
    return (
        left.strings == right.strings
        and left.kinds.tolist() == right.kinds.tolist()
        and left.values.tolist() == right.values.tolist()
        and (left.too_short, left.shared) == (right.too_short, right.shared)
    )


@pytest.mark.parametrize("count", [0, 1, 40_000])
def test_what_is_written_is_read(count: int, path: Path) -> None:
    written, key = content_of([f"{SUBJECT}.{number}" for number in range(count)]), new_key()
    write_needles(str(path), key, written)
    read = read_needles(str(path), key)
    assert read == written
    assert same(read.needles, written.needles)


def test_nothing_is_in_clear(path: Path) -> None:
    write_needles(str(path), new_key(), content_of([SUBJECT]))
    raw = path.read_bytes()
    assert not any(part in raw for part in (b"customer", b"GDPR", b"subjects", b"ARROW"))


def test_two_files_of_one_content_differ(path: Path) -> None:
    key, files = new_key(), []
    for _ in range(2):
        write_needles(str(path), key, content_of([SUBJECT]))
        files.append(path.read_bytes())
    assert files[0] != files[1]


def test_another_key_reads_nothing(path: Path) -> None:
    write_needles(str(path), new_key(), content_of([SUBJECT]))
    with pytest.raises(DamagedError, match="cannot be decrypted") as error:
        read_needles(str(path), new_key())
    assert error.value.exit_code == 6
    with pytest.raises(DamagedError, match="cannot be decrypted"):
        read_needles(str(path), b"not a key")


def test_every_damage_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte flipped, each length cut, frames swapped, repeated and left out."""
    monkeypatch.setattr(needle_file, "_FRAME_BYTES", 200)
    key = new_key()
    write_needles(str(path), key, content_of([SUBJECT]))
    whole = path.read_bytes()
    frame = 4 + 12 + 200 + 16
    first, second = whole[8 : 8 + frame], whole[8 + frame : 8 + 2 * frame]
    damaged = [
        *(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))),
        *(whole[:length] for length in range(len(whole))),
        whole + b"\0",
        whole + first,
        whole[:8] + second + first + whole[8 + 2 * frame :],
        whole[:8] + second + whole[8 + 2 * frame :],
        whole[:8] + first + first + whole[8 + frame :],
    ]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(DamagedError, match="cannot be decrypted"):
            read_needles(str(path), key)


def test_a_missing_file_is_not_a_damaged_one(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_needles(str(path), new_key())


def test_a_destroyed_file_is_overwritten_then_deleted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_key()
    write_needles(str(path), key, content_of([SUBJECT]))
    other_name = path.with_name("other-name")
    other_name.hardlink_to(path)
    length = path.stat().st_size
    destroy_needles(str(path))
    assert not path.exists()
    assert other_name.read_bytes() == bytes(length)
    destroy_needles(str(path))


def test_an_overwritten_file_is_destroyed_by_the_next_attempt(path: Path) -> None:
    write_needles(str(path), new_key(), content_of([SUBJECT]))
    local.overwrite(str(path), path.stat().st_size)
    destroy_needles(str(path))
    assert not path.exists()
