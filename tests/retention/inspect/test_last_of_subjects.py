from __future__ import annotations

import random
from contextlib import closing

import pyarrow as pa
import pytest

from retention.inspect import last_of_subjects
from retention.inspect.last_of_subjects import LastOfSubjects

FILES, FILE_ROWS, SUBJECTS = 30, 40, 300


@pytest.fixture
def digests() -> list[dict[str, int]]:
    """The last sequence of each subject of each file, sorted by subject."""
    choose = random.Random(11)
    subjects = [f"é.{number}" for number in range(SUBJECTS)]
    return [
        {
            name: seq + file * FILE_ROWS
            for seq, name in enumerate(choose.sample(subjects, FILE_ROWS))
        }
        for file in range(FILES)
    ]


@pytest.mark.parametrize(("held", "folded"), [(0, 1), (20, 1), (100, 1), (100, 90), (10_000, 1)])
def test_many_subjects_have_the_same_last_sequences_as_few(
    digests: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch, held: int, folded: int
) -> None:
    monkeypatch.setattr(last_of_subjects, "HELD_SUBJECTS", held)
    monkeypatch.setattr(last_of_subjects, "_LEAST_FOLDED", folded)
    with closing(LastOfSubjects()) as last:
        for digest in reversed(digests):
            last.add(table_of(digest))
            assert len(last._held) <= held
        seqs = last.seqs()
    newest: dict[str, int] = {}
    for digest in digests:
        newest |= digest
    assert seqs.tolist() == sorted(newest.values())


def test_no_more_subjects_are_held_than_that(
    digests: list[dict[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_of_subjects, "HELD_SUBJECTS", 50)
    monkeypatch.setattr(last_of_subjects, "_LEAST_FOLDED", 1)
    sizes: list[int] = []
    fold = last_of_subjects._folded
    monkeypatch.setattr(last_of_subjects, "_folded", lambda parts: sized(fold(parts), sizes))
    with closing(LastOfSubjects()) as last:
        for digest in digests:
            last.add(table_of(digest))
        assert len(last.seqs()) > 5 * max(sizes) / 2
    assert max(sizes) <= 50 + FILE_ROWS


def test_no_digests_have_no_last_sequences() -> None:
    with closing(LastOfSubjects()) as last:
        assert last.seqs().tolist() == []


def sized(table: pa.Table, sizes: list[int]) -> pa.Table:
    sizes.append(table.num_rows)
    return table


def table_of(digest: dict[str, int]) -> pa.Table:
    names = sorted(digest)
    return pa.table({"subject": names, "last_seq": [digest[name] for name in names]})
