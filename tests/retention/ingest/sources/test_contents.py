from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from retention.ingest.sources.contents import SourceContents, resolve
from retention.ingest.sources.directory import (
    ListingDifference,
    Resolved,
    SourceFile,
    TakenFile,
    Wishes,
    compare,
)
from retention.storage.listing import list_files


class Folder:
    """A source with files that change after their first ingest."""

    def __init__(self, where: Path, format_: str = "json") -> None:
        self.where = where
        self.contents = SourceContents(str(where), format_)
        self.taken: dict[str, TakenFile] = {}

    def write(self, name: str, text: str, at: int = 1) -> None:
        (self.where / name).write_bytes(text.encode())
        os.utime(self.where / name, (at, at))

    def listing(self) -> list[SourceFile]:
        return [
            SourceFile(one.path, one.length, one.modified_ns, one.etag, one.inode)
            for one in list_files(str(self.where))
        ]

    def take(self) -> None:
        self.taken = {file.path: self.contents.taken(file) for file in self.listing()}

    def difference(self) -> ListingDifference:
        return compare(self.listing(), self.taken)

    def resolved(self, **wishes: str) -> Resolved:
        decided = Wishes(*(frozenset(wishes.get(name, "").split()) for name in ("take", "skip")))
        return resolve(self.difference(), self.contents, decided)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_the_end_of_a_file_that_grew_by_whole_lines_is_new(folder: Folder) -> None:
    folder.write("ended", "1\n2\n")
    folder.write("open", "1\n2")
    folder.write("empty", "")
    folder.take()
    folder.write("ended", "1\n2\n3\n", 2)
    folder.write("open", "1\n2\n3", 2)
    folder.write("empty", "1\n", 2)
    resolved = folder.resolved()
    assert {part.file.path: (part.start, part.length) for part in resolved.parts} == {
        "ended": (4, 2),
        "open": (3, 2),
        "empty": (0, 2),
    }
    assert resolved.refused == ()


@pytest.mark.parametrize(
    ("now", "how"),
    [
        ("1\n2\n33\n44\n", "grew"),
        ("1\n", "shrank"),
        ("1\n9\n3", "changed"),
        ("1\n2\n345\n", "grew"),
    ],
    ids=["other beginning", "shorter", "rewritten", "a line went on"],
)
def test_what_changed_otherwise_is_refused_by_name(folder: Folder, now: str, how: str) -> None:
    folder.write("a.json", "1\n2\n3" if how != "grew" or "345" in now else "1\n2\n3\n")
    folder.take()
    folder.write("a.json", now, 2)
    [why] = folder.resolved().refused
    assert why.startswith(f"a.json {how} after it was taken (")
    assert [part.start for part in folder.resolved(take="a.json").parts] == [0]
    assert [known.length for known in folder.resolved(skip="a.json").known] == [len(now)]


@pytest.mark.parametrize(("format_", "name"), [("parquet", "a"), ("json", "a.gz")])
def test_only_lines_of_text_grow(tmp_path: Path, format_: str, name: str) -> None:
    folder = Folder(tmp_path, format_)
    folder.write(name, "1\n")
    folder.take()
    folder.write(name, "1\n2\n", 2)
    assert len(folder.resolved().refused) == 1


def test_a_touched_file_is_what_it_was(folder: Folder) -> None:
    folder.write("a.json", "1\n")
    folder.take()
    folder.write("a.json", "1\n", 2)
    resolved = folder.resolved()
    assert (resolved.parts, resolved.refused) == ((), ())
    assert [known.modified_ns for known in resolved.known] == [2 * 10**9]


def test_a_renamed_file_is_known_by_content_and_time(folder: Folder) -> None:
    folder.write("a.json", "1\n")
    folder.write("b.json", "2\n")
    folder.take()
    (folder.where / "b.json").rename(folder.where / "b.1")
    resolved = folder.resolved()
    assert resolved.renamed == (("b.json", "b.1"),)
    assert (resolved.parts, resolved.refused) == ((), ())


def test_a_log_that_was_rotated_is_followed_under_its_new_name(folder: Folder) -> None:
    folder.write("a.log", "1\n")
    folder.take()
    folder.write("a.log", "1\n2\n", 2)
    (folder.where / "a.log").rename(folder.where / "a.log.1")
    folder.write("a.log", "3\n", 3)
    resolved = folder.resolved()
    assert resolved.renamed == (("a.log", "a.log.1"),)
    assert [(part.file.path, part.start) for part in resolved.parts] == [
        ("a.log.1", 2),
        ("a.log", 0),
    ]
    assert resolved.refused == ()


def test_a_copy_in_place_of_a_file_that_is_gone_is_refused(folder: Folder) -> None:
    folder.write("a.json", "1\n")
    folder.take()
    # In this order, because a file system may give the inode of a deleted file to the next one.
    folder.write("copy.json", "1\n", 5)
    (folder.where / "a.json").unlink()
    [why] = folder.resolved().refused
    assert why.startswith(
        "copy.json has the same content as a.json, which was taken and no longer exists"
    )
    assert len(folder.resolved(take="copy.json").parts) == 1
    assert len(folder.resolved(skip="copy.json").known) == 1


def test_two_files_of_one_content_are_two_files(folder: Folder) -> None:
    folder.write("a.json", "1\n")
    folder.take()
    folder.write("b.json", "1\n")
    assert [part.file.path for part in folder.resolved().parts] == ["b.json"]


def test_a_file_that_this_process_cannot_read_has_changed_if_it_looks_so(folder: Folder) -> None:
    folder.write("a.json", "1\n")
    folder.contents = replace(folder.contents, readable=False)
    folder.take()
    folder.write("a.json", "1\n2\n", 2)
    assert len(folder.resolved().refused) == 1
