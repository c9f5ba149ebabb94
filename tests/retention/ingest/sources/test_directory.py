from __future__ import annotations

from retention.ingest.sources.directory import (
    SourceFile,
    TakenFile,
    compare,
    etag_content,
    is_hidden,
)

SECOND = 10**9


def file(path: str, length: int = 5, at: int = 7, etag: str = "") -> SourceFile:
    return SourceFile(path, length, at * SECOND, etag)


def taken(path: str, length: int = 5, at: int = 7, content: str = "") -> TakenFile:
    return TakenFile(path, length, at * SECOND, content)


def test_every_file_that_was_not_taken_is_new_however_old_it_is() -> None:
    difference = compare(
        [file("b", at=9), file("a", at=9), file("old", at=-400 * 86_400), file("t")],
        {"t": taken("t")},
    )
    assert [one.path for one in difference.new] == ["old", "a", "b"]
    assert (difference.changed, difference.gone) == ((), ())


def test_a_file_of_another_length_or_time_has_changed() -> None:
    known = {name: taken(name) for name in ("longer", "later", "same", "gone")}
    difference = compare([file("longer", 6), file("later", at=8), file("same")], known)
    assert [now.path for _, now in difference.changed] == ["longer", "later"]
    assert [one.path for one in difference.gone] == ["gone"]
    assert difference.new == ()


def test_an_object_is_known_by_its_etag_whatever_its_time() -> None:
    known = {"a": taken("a", content=etag_content("x"))}
    assert compare([file("a", at=99, etag="x")], known).is_empty
    assert not compare([file("a", etag="y")], known).is_empty


def test_hidden_files_are_those_of_spark() -> None:
    shown = ["a.json", "day=1/a.json", "_day=1/a.json", "a_b/.. c/x", "a/_b=1"]
    hidden = ["_SUCCESS", ".a.json.crc", "_temporary/0/a.json", "day=1/.a", "_delta_log/0.json"]
    assert [path for path in shown if is_hidden(path)] == ["a_b/.. c/x"]
    assert all(map(is_hidden, hidden))
    assert compare([file(path) for path in hidden], {}).is_empty


def test_files_that_are_still_written_by_their_names_are_left_and_said() -> None:
    difference = compare(
        [file("a.json.tmp"), file("b._COPYING_"), file("c.part"), file("d.json")], {}
    )
    assert [one.path for one in difference.new] == ["d.json"]
    assert difference.unfinished == ("a.json.tmp", "b._COPYING_", "c.part")
