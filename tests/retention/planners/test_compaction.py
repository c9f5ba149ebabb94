from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.config.keeping import Compaction
from retention.core.counters import Counters
from retention.core.inventory import Inventory
from retention.plan.compaction import BATCH_BYTES, CompactionPlan
from retention.planners.compaction import MergeBounds, light_runs, plan_merges
from retention.schemas.files import FILE_STATS
from retention.stores.checks.inventory import in_order
from tests.support.laws import law

SECOND = 1_000_000_000


def file(
    base: int, first: int, last: int, messages: int | None = None, **others: Any
) -> dict[str, Any]:
    """A file with messages evenly in a range of sequences, one per second; `merged`: written by a merge."""
    count = last - first + 1 if messages is None else messages
    partition = others.pop("partition", 0)
    version, letter = 8 if others.pop("merged", False) else 4, ord(others.pop("name", "a"))
    name = f"{first:012x}{version}{last:010x}{letter:09x}"
    stats = {
        "path": f"partition={partition}/segment={base}/{name}.parquet",
        "partition": partition,
        "segment": base,
        "file_bytes": 100 * count,
        "modified_ms": 0,
        "messages": count,
        "bytes": 10 * count,
        "min_seq": first,
        "max_seq": last,
        "min_ts_ns": first * SECOND,
        "max_ts_ns": last * SECOND,
        "first_ts_ns": first * SECOND,
        "last_ts_ns": last * SECOND,
        "never": 0,
        "deadlines": 0,
        "markers": 0,
        "in_time_order": True,
    }
    return stats | others


def planned(
    files: list[dict[str, Any]],
    open_base: int = 0,
    hidden: dict[str, int] | None = None,
    **bounds: Any,
) -> CompactionPlan:
    settings = Compaction(
        min_files=bounds.pop("min_files", 3),
        dead_share=bounds.pop("dead", 20),
        min_segment=bounds.pop("min_segment", 8 << 20),
    )
    given = {"segment_size": 1 << 28} | bounds
    last = max(entry["max_seq"] for entry in files)
    table = in_order(pa.Table.from_pylist(files, schema=FILE_STATS))
    inventory = Inventory("S", "id", 7, table, Counters({0: last + 1}, {0: open_base}))
    return plan_merges(inventory, MergeBounds(settings, **given))


def merged(plan: CompactionPlan) -> list[tuple[str, int, list[int]]]:
    """Reason, segment and first sequences of the files of each merge."""
    return [(m.reason, m.segment, m.files["min_seq"].to_pylist()) for m in plan.merges]


TENS = [file(1, at, at + 9) for at in (1, 11, 21, 31)]

INSIDE: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[Any]]] = {
    "many small files": (TENS, {}, [("small_files", 1, [1, 11, 21, 31])]),
    "too few": (TENS[:2], {}, []),
    "exactly enough": (TENS[:3], {}, [("small_files", 1, [1, 11, 21])]),
    "one that fills a third of a segment is good enough, and divides them": (
        [*TENS[:3], file(1, 41, 50, bytes=400), *[file(1, at, at) for at in (51, 52)]],
        {"segment_size": 1_200},
        [("small_files", 1, [1, 11, 21])],
    ),
    "of those never merged before one may be larger": (
        [file(1, 1, 10, file_bytes=90_000), *TENS[1:3]],
        {},
        [("small_files", 1, [1, 11, 21])],
    ),
    "what was merged waits for enough of its like": (
        [file(1, 1, 30, merged=True), *[file(1, at, at + 9) for at in (31, 41, 51)]],
        {},
        [("small_files", 1, [31, 41, 51])],
    ),
    "what was merged is merged again with enough of its like": (
        [
            *[file(1, at, at + 29, merged=True) for at in (1, 31)],
            *[file(1, at, at + 9) for at in (61, 71, 81)],
        ],
        {},
        [("small_files", 1, [1, 31, 61, 71, 81])],
    ),
    "each segment by itself": (
        [*TENS[:2], *[file(21, at, at + 9) for at in (21, 31, 41)]],
        {},
        [("small_files", 21, [21, 31, 41])],
    ),
    "each partition by itself": (
        [*TENS[:2], *[file(1, at, at + 9, partition=1) for at in (11, 21)]],
        {},
        [],
    ),
    "interleaved files are taken together": (
        [
            *[file(1, 1, 20, 10, name=n, file_bytes=500) for n in "ab"],
            *[file(1, at, at + 9) for at in (21, 31)],
        ],
        {},
        [("small_files", 1, [1, 1, 21, 31])],
    ),
    "what another writer has shuffled becomes one": (
        [file(1, 1, 30, 10, name=n) for n in "abc"],
        {},
        [("small_files", 1, [1, 1, 1])],
    ),
    "files apart by deadline stay as many as the most divided append left": (
        [
            *[file(1, 1, 20, 10, name=n, file_bytes=300) for n in "abc"],
            *[file(1, at, at + 9) for at in (21, 31, 41)],
        ],
        {"most_files": 16},
        [("small_files", 1, [1, 1, 1, 21, 31, 41])],
    ),
    "of files apart by deadline alone nothing is saved": (
        [file(1, 1, 20, 10, name=n) for n in "abcd"],
        {"most_files": 16},
        [],
    ),
}


@pytest.mark.parametrize("case", INSIDE)
def test_files_of_a_segment_are_merged(case: str) -> None:
    files, bounds, expected = INSIDE[case]
    assert merged(planned(files, **bounds)) == expected


HOLLOW = [file(base, base, base + 2) for base in (1, 11, 21, 31)]
"""Segments of ten sequences with three remaining."""
OPEN = file(41, 41, 50)

NEIGHBOURS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[Any]]] = {
    "all fit into one": (
        [*HOLLOW, OPEN],
        {"segment_size": 1_000},
        [("hollow_segments", 1, [1, 11, 21, 31])],
    ),
    "as many as fit": (
        [*HOLLOW, OPEN],
        {"segment_size": 60},
        [("hollow_segments", 1, [1, 11]), ("hollow_segments", 21, [21, 31])],
    ),
    "never wider than a segment may be": (
        [*HOLLOW, OPEN],
        {"segment_size": 1_000, "segment_span_ns": 13 * SECOND},
        [("hollow_segments", 1, [1, 11]), ("hollow_segments", 21, [21, 31])],
    ),
    "a whole one stays, and divides them": (
        [HOLLOW[0], file(11, 11, 20), *HOLLOW[2:], OPEN],
        {"segment_size": 1_000},
        [("hollow_segments", 21, [21, 31])],
    ),
    "a little is not merged with a lot": (
        [file(1, 1, 8), file(11, 11, 11), OPEN],
        {"segment_size": 1_000},
        [],
    ),
    "topics and whole segments are not": ([*HOLLOW, OPEN], {"joins_segments": False}, []),
}


@pytest.mark.parametrize("case", NEIGHBOURS)
def test_hollow_neighbours_are_merged(case: str) -> None:
    files, bounds, expected = NEIGHBOURS[case]
    plan = planned(files, open_base=41, **bounds)
    assert sorted(merged(plan)) == expected


QUIET = [file(base, base, base + 9) for base in (1, 11, 21, 31)]
"""Whole segments of ten messages and 100 bytes each."""

SMALL: dict[str, tuple[list[dict[str, Any]], dict[str, Any], list[Any]]] = {
    "whatever their span": (
        [*QUIET, OPEN],
        {"segment_span_ns": 5 * SECOND},
        [("small_segments", 1, [1, 11, 21, 31])],
    ),
    "up to the size of a small segment": (
        [*QUIET, OPEN],
        {"min_segment": 300},
        [("small_segments", 1, [1, 11, 21])],
    ),
    "never beyond that of a segment": ([*QUIET, OPEN], {"segment_size": 200}, []),
    "none that is not small": (
        [QUIET[0], file(11, 11, 20, bytes=9 << 20), *QUIET[2:], OPEN],
        {},
        [],
    ),
    "only many": ([*QUIET[:2], file(21, 21, 30)], {"open_base": 21}, []),
    "one that was merged waits for enough of its like": (
        [file(1, 1, 30, merged=True), *[file(at, at, at + 1) for at in (31, 33, 35)], OPEN],
        {},
        [("small_segments", 31, [31, 33, 35])],
    ),
    "not if that is switched off": ([*QUIET, OPEN], {"min_segment": 0}, []),
    "topics and whole segments are not": ([*QUIET, OPEN], {"joins_segments": False}, []),
    "by deadline only as wide as a segment may be": (
        [*QUIET, OPEN],
        {"most_files": 4, "segment_span_ns": 40 * SECOND},
        [("small_segments", 1, [1, 11, 21, 31])],
    ),
    "by deadline no layout is undone": (
        [*QUIET, OPEN],
        {"most_files": 4, "segment_span_ns": 5 * SECOND},
        [],
    ),
}


@pytest.mark.parametrize("case", SMALL)
def test_many_small_sealed_segments_become_one(case: str) -> None:
    files, bounds, expected = SMALL[case]
    assert merged(planned(files, **{"open_base": 41, **bounds})) == expected


def test_quiet_days_are_written_a_few_times_and_leave_a_few_segments() -> None:
    sizes: list[tuple[int, bool]] = []
    written = 0
    for _ in range(365):
        sizes.append((2, False))
        ends = np.cumsum([size for size, _ in sizes])
        files = [
            file(int(end) - size + 1, int(end) - size + 1, int(end), merged=is_merged)
            for end, (size, is_merged) in zip(ends, sizes, strict=True)
        ]
        plan = planned([*files, file(10_000, 10_000, 10_000)], open_base=10_000, min_files=8)
        for merge in plan.merges:
            first = [entry["min_seq"] for entry in files].index(merge.files["min_seq"][0].as_py())
            total = sum(merge.files["messages"].to_pylist())
            sizes[first : first + merge.files.num_rows] = [(total, True)]
            written += total
    assert len(sizes) < 24
    assert written < 3 * 2 * 365


def test_the_open_segment_is_merged_with_no_other() -> None:
    plan = planned(HOLLOW, open_base=31, segment_size=1_000)
    assert merged(plan) == [("hollow_segments", 1, [1, 11, 21])]


def test_the_best_come_first_and_only_as_many_as_the_bytes_allow() -> None:
    small = [file(1, at, at) for at in range(1, 9)]
    large = [file(101, at, at + 99) for at in range(101, 900, 100)]
    plan = planned([*large, *small])
    assert [merge.segment for merge in plan.merges] == [1, 101]
    assert [merge.segment for merge in plan.within(1_000).merges] == [1]
    assert plan.within(None) == plan
    assert plan.files_saved == 14
    assert [len(batch) for batch in plan.batches()] == [2]


def test_a_commit_rewrites_about_a_gibibyte() -> None:
    each = BATCH_BYTES // 4
    files = [
        file(base, base + at, base + at, file_bytes=each) for base in (1, 11, 21) for at in range(3)
    ]
    assert [len(batch) for batch in planned(files).batches()] == [1, 1, 1]


def test_runs_without_a_heavy_one() -> None:
    sizes = np.array([1, 1, 9, 1, 1, 1])
    assert light_runs(sizes, sizes * 2, least=2) == [(0, 2), (3, 6)]
    assert light_runs(sizes, sizes * 1.5, least=2) == [(0, 6)]
    assert light_runs(sizes[:0], sizes[:0], least=2) == []
    assert light_runs(sizes[:1], sizes[:1], least=2) == []


@law
@given(
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0.0, 1.5, 8.0, np.inf])), max_size=12),
    st.integers(2, 4),
)
def test_no_run_holds_a_heavy_one(files: list[tuple[int, float]], least: int) -> None:
    sizes = np.array([size for size, _ in files], dtype=np.int64)
    weights = np.array([size * times for size, times in files], dtype=np.float64)
    found = light_runs(sizes, weights, least)
    for start, end in found:
        assert end - start >= least
        assert weights[start:end].max() <= sizes[start:end].sum()
    assert all(first[1] <= second[0] for first, second in pairwise(found))


@law
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.booleans(), st.integers(0, 30)), min_size=1, max_size=20
    ),
    st.integers(2, 4),
    st.sampled_from([1, 40, 200]),
)
def test_merges_are_disjoint_and_leave_segments_in_order(
    laid: list[tuple[int, bool, int]], least: int, size: int
) -> None:
    """Consecutive files with gaps; some of them begin a segment."""
    files, base, seq = [], 1, 1
    for count, begins, gap in laid:
        seq += gap
        base = seq if begins else base
        files.append(file(base, seq, seq + count - 1))
        seq += count
    plan = planned(files, open_base=base, min_files=least, segment_size=size)
    paths = [path for merge in plan.merges for path in merge.files["path"].to_pylist()]
    assert len(set(paths)) == len(paths)
    segment_of = {entry["path"]: entry["segment"] for entry in files}
    for merge in plan.merges:
        assert merge.files_saved >= 1
        segment_of |= dict.fromkeys(merge.files["path"].to_pylist(), merge.segment)
        if merge.segments > 1:
            assert max(merge.files["segment"].to_pylist()) < base
            assert sum(merge.files["bytes"].to_pylist()) <= size
    bases = [segment_of[entry["path"]] for entry in files]
    assert bases == sorted(bases)
    assert all(bound <= entry["min_seq"] for bound, entry in zip(bases, files, strict=True))
