"""Writes of local files while their empty directory is removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention.storage import files, local


@pytest.fixture
def rival(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A rival that removes a directory immediately after its first creation."""
    removed: list[str] = []
    make = local.make_directories

    def make_and_lose(directories: object) -> None:
        wanted = list(directories)  # type: ignore[call-overload]
        make(wanted)
        if not removed:
            removed.extend(one for one in wanted if files.remove_directory(one))

    monkeypatch.setattr(local, "make_directories", make_and_lose)
    return removed


def test_a_file_makes_its_directory_once_more(tmp_path: Path, rival: list[str]) -> None:
    files.replace(str(tmp_path / "a" / "b"), b"x")
    assert rival == [str(tmp_path / "a")]
    assert (tmp_path / "a" / "b").read_bytes() == b"x"


def test_a_move_makes_its_directory_once_more(tmp_path: Path, rival: list[str]) -> None:
    (tmp_path / "b").write_bytes(b"x")
    gone = (str(tmp_path / "gone"), str(tmp_path / "a" / "gone"))
    files.move([(str(tmp_path / "b"), str(tmp_path / "a" / "b")), gone])
    assert rival == [str(tmp_path / "a")]
    assert (tmp_path / "a" / "b").read_bytes() == b"x"
    assert not (tmp_path / "a" / "gone").exists()


def test_only_an_empty_directory_is_removed(tmp_path: Path) -> None:
    (tmp_path / "full" / "empty").mkdir(parents=True)
    assert not files.remove_directory(str(tmp_path / "full"))
    assert files.remove_directory(str(tmp_path / "full" / "empty"))
    assert files.remove_directory(str(tmp_path / "full" / "empty"))
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
