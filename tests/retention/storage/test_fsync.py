"""Durability of directories: few are synced one by one, many at once on file systems known to support it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from retention.storage import files, fsync
from retention.storage.fsync import MANY, sync_directories


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The synced directories and file systems."""
    told: list[str] = []
    one, whole = fsync.sync_directory, fsync._sync_file_system

    def sync_one(directory: str) -> None:
        one(directory)
        told.append(directory)

    def sync_whole(directory: str) -> None:
        whole(directory)
        told.append(f"the file system of {Path(directory).name}")

    monkeypatch.setattr(fsync, "sync_directory", sync_one)
    monkeypatch.setattr(fsync, "_sync_file_system", sync_whole)
    return told


def directories(folder: Path, count: int) -> list[str]:
    made = [folder / f"{number:03}" for number in range(count)]
    for directory in made:
        directory.mkdir()
    return [str(directory) for directory in made]


def mounts(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the system report a mount of that kind for the folder, listed after one of another device."""
    device = folder.stat().st_dev
    named = f"{os.major(device)}:{os.minor(device)}"
    said = folder / "mountinfo"
    said.write_text(
        f"27 1 999:9 / /other rw shared:3 - ext4 /dev/x rw\n28 1 {named} / / rw shared:1 - {kind} /dev/y rw\n"
    )
    monkeypatch.setattr(fsync, "_MOUNTS", str(said))


def test_few_directories_are_synced_one_by_one(tmp_path: Path, synced: list[str]) -> None:
    made = directories(tmp_path, MANY - 1)
    sync_directories(made)
    assert synced == made


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_many_are_synced_with_their_file_system(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts(tmp_path, kind, monkeypatch)
    sync_directories(directories(tmp_path, MANY))
    assert synced == ["the file system of 000"]


@pytest.mark.parametrize("kind", ["fuse.s3fs", "nfs4"])
def test_many_are_synced_one_by_one_where_a_file_system_is_not_known(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts(tmp_path, kind, monkeypatch)
    made = directories(tmp_path, MANY)
    sync_directories(made)
    assert sorted(synced) == made


def test_many_are_synced_one_by_one_where_the_system_does_not_tell(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsync, "_MOUNTS", str(tmp_path / "nothing"))
    made = directories(tmp_path, MANY)
    sync_directories(made)
    assert sorted(synced) == made


def test_a_sync_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts(tmp_path, "ext4", monkeypatch)
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(OSError, match=str(file)):
        fsync._sync_file_system(str(file))

    def failing(_: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fsync, "_sync_file_system", failing)
    with pytest.raises(OSError, match="Input/output error"):
        sync_directories(directories(tmp_path, MANY))


def test_many_moves_sync_every_directory_that_they_touch(
    tmp_path: Path, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsync, "_MOUNTS", str(tmp_path / "nothing"))
    sources = directories(tmp_path, MANY)
    pairs = []
    for source in sources:
        Path(source, "a").write_bytes(b"a")
        pairs.append((f"{source}/a", f"{tmp_path}/trash/{Path(source).name}/a"))
    files.move(pairs)
    moved = [target.rpartition("/")[0] for _, target in pairs]
    assert sorted(synced) == sorted([str(tmp_path), f"{tmp_path}/trash", *sources, *moved])
    assert all(Path(target).read_bytes() == b"a" for _, target in pairs)
