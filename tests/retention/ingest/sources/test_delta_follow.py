from __future__ import annotations

from typing import Any

import pytest

from retention.ingest.sources.delta_follow import ALL_ROWS, Commit, DeltaFiles, Followed, follow
from retention.ingest.sources.directory import Wishes


def add(
    path: str, hidden: int = 0, *, change: bool = True, day: str | None = None
) -> dict[str, Any]:
    vector = {"deletionVector": {"cardinality": hidden}} if hidden else {}
    return {"path": path, "dataChange": change, "partitionValues": {"day": day}, **vector}


def remove(path: str, *, change: bool = True, day: str | None = None) -> dict[str, Any]:
    return {"path": path, "dataChange": change, "partitionValues": {"day": day}}


def followed(
    commits: list[Commit], taken: dict[str, int] | None = None, pending: str = "", **wishes: str
) -> Followed:
    known = DeltaFiles({path: add(path) for path in pending}, taken or {})
    decided = Wishes(*(frozenset(wishes.get(name, "").split()) for name in ("take", "skip")))
    return follow(known, commits, decided)


def test_files_that_are_added_are_new_and_those_before_stay_taken() -> None:
    done = followed([Commit(1, [add("b")]), Commit(2, [add("c")])], {"a": 0})
    assert (sorted(done.files.pending), done.files.taken) == (["b", "c"], {"a": 0})
    assert (done.refused, done.notes) == ((), ())


def test_removals_take_nothing_back_and_spare_what_was_not_taken() -> None:
    done = followed(
        [Commit(1, removes=[remove("a"), remove("b")], operation="DELETE")], {"a": 0}, "b"
    )
    assert (done.files.pending, done.files.taken) == ({}, {"a": 0})
    assert done.notes == (
        "version 1 (DELETE by another program) removed 1 file with rows that were not taken yet; those rows are not in "
        "the stream",
    )


@pytest.mark.parametrize(
    ("pending", "come", "taken"),
    [
        ("", "", {"a": 0, "b": 0, "m": 0}),
        ("ab", "m", {"a": 0, "b": 0}),
        ("b", "b", {"a": 0, "m": 0}),
    ],
    ids=[
        "all taken: passed over",
        "none taken: it stands for them",
        "mixed: the untaken is read from before",
    ],
)
@pytest.mark.parametrize(
    ("operation", "change"), [("OPTIMIZE", False), ("DELETE", True)], ids=["OPTIMIZE", "DELETE"]
)
def test_a_file_that_holds_rows_of_others_brings_none_twice(
    pending: str, come: str, taken: dict[str, int], operation: str, *, change: bool
) -> None:
    commit = Commit(
        5,
        [add("m", change=change)],
        [remove("a", change=change), remove("b", change=change)],
        operation,
    )
    done = followed([commit], {path: 0 for path in "ab" if path not in pending}, pending)
    assert "".join(done.files.pending) == come
    assert done.files.taken.keys() == taken.keys()
    assert done.refused == ()


def test_what_was_merged_is_told_apart_by_partition() -> None:
    merged = [add("m1", change=False, day="1"), add("m2", change=False, day="2")]
    gone = [remove("a", change=False, day="1"), remove("b", change=False, day="2")]
    done = followed([Commit(5, merged, gone, "OPTIMIZE")], {"a": 0}, "b")
    assert sorted(done.files.pending) == ["m2"]


def test_a_vector_on_an_untaken_file_is_read_and_on_a_taken_one_changes_nothing() -> None:
    commit = Commit(3, [add("a", 2), add("b", 3)], [remove("a"), remove("b")], "DELETE")
    done = followed([commit], {"a": 0}, "b")
    assert done.files.pending["b"]["deletionVector"] == {"cardinality": 3}
    assert done.files.taken == {"a": 0}


REWRITE = Commit(4, [add("m"), add("n")], [remove("a"), remove("b")], "MERGE", "Spark/4")


def test_a_rewrite_of_taken_rows_is_refused_until_somebody_decides() -> None:
    done = followed([REWRITE], {"a": 0}, "b")
    assert done.refused == (
        "version 4 (MERGE by Spark/4) rewrites rows that were taken: it is unclear which rows of the 2 files that it "
        "added are new (--skip 4 continues without those, --take 4 takes all of them)",
    )
    skipped = followed([REWRITE], {"a": 0}, "b", skip="4")
    assert sorted(skipped.files.pending) == ["b"], "its rows were never taken, and m may hold them"
    assert skipped.files.taken == {"a": 0, "m": 0, "n": 0}
    assert sorted(followed([REWRITE], {"a": 0}, "b", take="4").files.pending) == ["m", "n"]


def test_a_rewrite_of_rows_that_were_not_taken_is_no_question() -> None:
    done = followed([REWRITE], {}, "ab")
    assert sorted(done.files.pending) == ["m", "n"]
    assert done.refused == ()


def test_only_the_version_that_was_decided_is_let_through() -> None:
    later = Commit(6, [add("o")], [remove("m")], "UPDATE")
    done = followed([REWRITE, later], {"a": 0, "b": 0}, skip="4")
    assert [text.partition(" (")[0] for text in done.refused] == ["version 6"]


def test_a_restore_brings_back_taken_files_and_no_row_of_theirs() -> None:
    done = followed([Commit(9, [add("a")], [remove("b")], "RESTORE")], {"a": 0, "b": 0})
    assert (done.files.pending, done.refused) == ({}, ())


def test_a_restore_of_rows_that_were_never_taken_is_refused() -> None:
    done = followed([Commit(9, [add("a", 1), add("x")], [], "RESTORE")], {"a": 3})
    assert len(done.refused) == 2
    assert (
        "brings back rows of a that were deleted before it was taken (--skip 9" in done.refused[0]
    )
    assert followed([Commit(9, [add("a", 1)], [], "RESTORE")], {"a": 3}, skip="9").refused == ()
    assert followed([Commit(9, [add("a", 3)], [], "RESTORE")], {"a": 3}).refused == ()


def test_a_file_from_which_rows_were_deleted_before_they_came_is_remembered() -> None:
    shrunk = Commit(2, [add("m")], [remove("a")], "DELETE")
    done = followed([shrunk], {}, "a")
    assert done.files.taken == {"a": ALL_ROWS}
    assert len(followed([Commit(3, [add("a")], [], "RESTORE")], done.files.taken).refused) == 1


def test_what_is_read_from_a_version_before_stays_until_it_is_taken() -> None:
    first = followed(
        [Commit(5, [add("m", change=False)], [remove("a"), remove("b")], "OPTIMIZE")], {"a": 0}, "b"
    )
    again = follow(first.files, [Commit(6, [add("n", change=False)], [remove("m")], "OPTIMIZE")])
    assert sorted(again.files.pending) == ["b"]
