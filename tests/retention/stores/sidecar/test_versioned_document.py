from __future__ import annotations

from pathlib import Path

import pytest

from retention.storage import files
from retention.stores.sidecar.versioned_document import KEPT, FileVersions


def numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.iterdir())


def filled(folder: Path, count: int) -> FileVersions:
    versions = FileVersions(str(folder / "v"))
    for number in range(1, count + 1):
        assert versions.add(number, b"%d" % number)
        versions.tidy()
    return versions


def test_the_newest_version_is_what_counts(tmp_path: Path) -> None:
    assert FileVersions(str(tmp_path / "v")).newest() is None
    location, number, content = filled(tmp_path, 3).newest() or ("", 0, b"")
    assert (location.rpartition("/")[2], number, content) == (f"{3:020d}.json", 3, b"3")


def test_of_rivals_one_creates_the_next_version(tmp_path: Path) -> None:
    mine = filled(tmp_path, 2)
    theirs = FileVersions(mine.directory)
    assert theirs.add(3, b"theirs")
    assert not mine.add(3, b"mine")
    assert (mine.newest() or ("", 0, b""))[2] == b"theirs"


def test_old_versions_are_deleted_and_the_newest_stay(tmp_path: Path) -> None:
    filled(tmp_path, KEPT + 5)
    assert numbers(tmp_path / "v") == list(range(6, KEPT + 6))


def test_who_stood_still_while_his_number_was_used_and_deleted_has_not_come_first(
    tmp_path: Path,
) -> None:
    paused = FileVersions(filled(tmp_path, 1).directory)
    filled_on = FileVersions(paused.directory)
    for number in range(2, KEPT + 5):
        assert filled_on.add(number, b"%d" % number)
        filled_on.tidy()
    assert 2 not in numbers(tmp_path / "v")
    assert not paused.add(2, b"late")
    assert (paused.newest() or ("", 0, b""))[2] == b"%d" % (KEPT + 4)
    filled_on.tidy()
    assert 2 not in numbers(tmp_path / "v")


def test_files_of_others_are_no_versions(tmp_path: Path) -> None:
    versions = filled(tmp_path, 1)
    for name in ("notes.txt", "9.json", ".00000000000000000009.json.x.tmp"):
        (tmp_path / "v" / name).write_text("x")
    assert (versions.newest() or ("", 0, b""))[1] == 1


@pytest.mark.parametrize("seen", [0, 1, 2])
def test_what_a_late_listing_hides_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: int
) -> None:
    versions = FileVersions(str(tmp_path))
    for number in (1, 2, 3):
        assert versions.add(number, b"%d" % number)
    late = files.names(str(tmp_path))[:seen]
    monkeypatch.setattr(files, "names", lambda _: late)
    found = versions.newest()
    assert found is not None
    assert found[1:] == (3, b"3")
