from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import getitem

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.core.neighbours import runs_within
from retention.planners import subject_ranges
from retention.planners.subject_ranges import (
    DEALT,
    SAMPLES,
    bounds_of,
    deal_subjects,
    dealt_rows,
    sampled,
)


def digest(file: int, subjects: Sequence[str]) -> pa.Table:
    count = len(subjects)
    columns = [np.full(count, file), sorted(subjects), np.ones(count), np.arange(count)]
    return pa.table(dict(zip(DEALT.names, columns, strict=True)), DEALT)


def pairs_of(rows: pa.Table) -> list[tuple[str, int]]:
    return [*zip(rows["subject"].to_pylist(), rows["file"].to_pylist(), strict=True)]


SHAPES = {
    "the same subjects in all files": [[f"s.{number}" for number in range(4_000)]] * 20,
    "new subjects in each file": [
        [f"s.{number:06}" for number in range(4_000 * file, 4_000 * (file + 1))]
        for file in range(20)
    ],
    "a large file of other subjects": [[f"s.{number}" for number in range(2_000)]] * 10
    + [[f"t.{number}" for number in range(60_000)]],
    "many small files": [
        [f"s.{number * 7_919 % 80_000}" for number in range(at, at + 50)]
        for at in range(0, 80_000, 50)
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_ranges_have_about_the_same_number_of_rows(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject_ranges, "RANGE_BYTES", 5_000)
    digests = [digest(file, subjects) for file, subjects in enumerate(SHAPES[shape])]
    ends = runs_within([one.num_rows for one in digests], 5_000)
    tasks = [digests[start:end] for start, end in ends]
    samples = [sampled(getitem, (task, list(map(len, task)))) for task in tasks]
    bounds = bounds_of(samples, sum(map(len, digests)) // 5_000)
    ranges = np.zeros(len(bounds) + 1, np.int64)
    for task in tasks:
        places = pc.search_sorted(bounds, pa.concat_tables(task)["subject"], side="right")
        ranges += np.bincount(places.to_numpy(), minlength=len(ranges))
    assert ranges.max() < 1.5 * ranges.mean()


def test_digests_without_rows_have_one_range() -> None:
    nothing = sampled(getitem, ([digest(0, [])], [0]))
    bounds = bounds_of([nothing], 3)
    assert len(bounds) == 0
    assert list(deal_subjects(getitem, bounds, ([digest(0, [])], [0]))) == []


def test_one_subject_has_one_range() -> None:
    bounds = bounds_of([pa.array(["s"] * 100), pa.array(["s"])], 9)
    digests = [digest(0, ["s"]), digest(1, ["s"])]
    parts = deal_subjects(getitem, bounds, (digests, [1, 1]))
    assert [number for number, _ in parts] == [1]


def test_a_sample_reads_few_of_very_many_small_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_ranges, "RANGE_BYTES", 5_000)
    digests = [digest(file, [f"s.{file}"]) for file in range(5_000)]
    read = []

    def reading(task: list[pa.Table], at: int) -> pa.Table:
        read.append(at)
        return task[at]

    subjects = sampled(reading, (digests, [1] * 5_000))
    assert len(read) == len(subjects) == SAMPLES
    assert max(np.diff(sorted(read))) < 3 * 5_000 / SAMPLES


@pytest.mark.parametrize("gathered", [0, 3, 1_000])
def test_rows_of_small_digests_reach_the_same_ranges(
    monkeypatch: pytest.MonkeyPatch, gathered: int
) -> None:
    monkeypatch.setattr(subject_ranges, "GATHERED", gathered)
    sizes = [1, 0, 40, 2, 2, 2, 90, 1]
    digests = [
        digest(file, [f"s.{(7 * file + number) % 97:02}" for number in range(size)])
        for file, size in enumerate(sizes)
    ]
    bounds = pa.array(["s.00", "s.05", "s.50", "s.51", "t"])
    dealt = deal_subjects(getitem, bounds, (digests, sizes))
    parts = {number: pairs_of(dealt_rows([content])) for number, content in dealt}
    rows = [pair for each in digests for pair in pairs_of(each)]
    assert sorted(row for inside in parts.values() for row in inside) == sorted(rows)
    for number, inside in parts.items():
        assert {bisect_right(bounds.to_pylist(), subject) for subject, _ in inside} == {number}
        files_of = {
            subject: [file for each, file in inside if each == subject] for subject, _ in inside
        }
        assert all(files == sorted(files) for files in files_of.values())
