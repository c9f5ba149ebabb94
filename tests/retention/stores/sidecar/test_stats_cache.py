"""The statistics cache: hits, evictions, and its bounded size."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from retention.datafile import parquet
from retention.schemas.files import LOGGED_FILES
from retention.stores.layout import Layout
from retention.stores.sidecar import stats_cache
from retention.stores.sidecar.stats_cache import StatisticsCache

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def stats(path: str, modified_ms: int = NOW_MS, file_bytes: int = 100) -> pa.Table:
    numbers = dict.fromkeys(("min_ts_ns", "max_ts_ns", "first_ts_ns", "last_ts_ns"), 5)
    counts = dict.fromkeys(("never", "deadlines", "markers"), 0)
    row = {
        "path": path,
        "partition": 0,
        "segment": 1,
        "file_bytes": file_bytes,
        "modified_ms": modified_ms,
        "messages": 1,
        "bytes": file_bytes,
        "min_seq": 1,
        "max_seq": 1,
        "in_time_order": True,
    }
    return parquet.stats_table([row | numbers | counts])


def logged(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables).select(LOGGED_FILES.names)


@pytest.fixture
def known(tmp_path: Path) -> StatisticsCache:
    return StatisticsCache(Layout(str(tmp_path), "ORDERS"), lambda: NOW_MS * 1_000_000)


def test_only_the_very_same_file_is_known(known: StatisticsCache) -> None:
    known.add(stats("a"))
    known.add(stats("b"))
    live = logged(stats("b", file_bytes=101), stats("a"), stats("c"))
    found, missing = known.match(live)
    assert found.equals(stats("a"))
    assert missing["path"].to_pylist() == ["b", "c"]


def test_a_path_is_known_by_the_row_of_that_very_file_among_several(tmp_path: Path) -> None:
    times = iter((2, 1))
    known = StatisticsCache(Layout(str(tmp_path), "ORDERS"), lambda: next(times))
    known.add(stats("a", modified_ms=7))
    known.add(stats("a", modified_ms=6))
    assert known.match(logged(stats("a", modified_ms=7)))[0].num_rows == 1
    assert known.match(logged(stats("a", modified_ms=6)))[0].num_rows == 1
    assert known.match(logged(stats("a", modified_ms=5)))[0].num_rows == 0


def test_a_file_is_known_only_if_the_log_has_the_same_numbers_or_none(
    known: StatisticsCache,
) -> None:
    """Rows: one without numbers in the log, one with the same, and one with another highest sequence."""
    known.add(pa.concat_tables([stats("a"), stats("b"), stats("c")]))
    highest = pa.array([None, 1, 2], pa.int64())
    live = logged(stats("a"), stats("b"), stats("c")).append_column("max_seq", highest)
    found, missing = known.match(live)
    assert found["path"].to_pylist() == ["a", "b"]
    assert missing["path"].to_pylist() == ["c"]


@pytest.mark.parametrize("paths", ["abcd", "bc", "bd", "acbd", "xbc", "bcx"])
def test_files_are_known_in_any_order(known: StatisticsCache, paths: str) -> None:
    """The statistics of each file are its own, beside files that the cache does not have (`x`)."""
    known.add(pa.concat_tables([stats(path, file_bytes=ord(path)) for path in "abcd"]))
    wanted = [stats(path, file_bytes=ord(path)) for path in paths]
    found, missing = known.match(logged(*wanted))
    assert found.equals(pa.concat_tables(each for each in wanted if each["path"][0].as_py() != "x"))
    assert missing.num_rows == paths.count("x")


def test_an_empty_cache_knows_nothing(known: StatisticsCache) -> None:
    found, missing = known.match(logged(stats("a")))
    assert (found.num_rows, missing.num_rows) == (0, 1)
    assert known.match(LOGGED_FILES.empty_table())[0].num_rows == 0


def test_what_a_rival_has_merged_is_forgotten(tmp_path: Path, known: StatisticsCache) -> None:
    tables = [stats(f"f{number}") for number in range(stats_cache.MERGE_ABOVE + 1)]
    for table in tables:
        known.add(table)
    rival = StatisticsCache(Layout(str(tmp_path), "ORDERS"), lambda: NOW_MS * 1_000_000)
    rival.tidy(lambda: pa.concat_tables(tables))
    assert known.match(logged(*tables))[0].num_rows == len(tables)
    assert len(vars(known)["_known"]) == 1


def test_many_files_become_one_that_keeps_live_and_young_rows(
    tmp_path: Path, known: StatisticsCache
) -> None:
    old = NOW_MS - 2 * DAY_MS
    live = stats("live", modified_ms=old)
    tables = [live, stats("gone", modified_ms=old), stats("staged", modified_ms=NOW_MS)]
    for number in range(stats_cache.MERGE_ABOVE + 1):
        known.add(tables[number % 3])
    known.tidy(lambda: live)
    assert len(list((tmp_path / "_retention" / "stats").iterdir())) == 1
    found, missing = known.match(logged(*tables))
    assert found["path"].to_pylist() == ["live", "staged"]
    assert missing["path"].to_pylist() == ["gone"]
    (merged,) = vars(known)["_known"].values()
    assert {column.num_chunks for column in merged.columns} == {1}


def test_many_files_become_fewer_with_all_rows_if_the_live_ones_are_not_known(
    tmp_path: Path, known: StatisticsCache
) -> None:
    old = NOW_MS - 2 * DAY_MS
    tables = [stats(f"f{number}", modified_ms=old) for number in range(stats_cache.MERGE_ABOVE + 1)]
    for table in tables[:-1]:
        known.add(table)
    known.merge()
    assert len(list((tmp_path / "_retention" / "stats").iterdir())) == stats_cache.MERGE_ABOVE
    known.add(tables[-1])
    known.merge()
    assert len(list((tmp_path / "_retention" / "stats").iterdir())) == 1
    assert known.match(logged(*tables))[0].num_rows == len(tables)


@pytest.mark.parametrize("small_rows", [0, 9], ids=["in Parquet", "in Arrow"])
def test_files_of_both_kinds_are_known_to_another_process(
    tmp_path: Path, known: StatisticsCache, monkeypatch: pytest.MonkeyPatch, small_rows: int
) -> None:
    known.add(stats("a"))
    monkeypatch.setattr(stats_cache, "_SMALL_ROWS", small_rows)
    known.add(stats("b"))
    later = StatisticsCache(Layout(str(tmp_path), "ORDERS"), lambda: NOW_MS * 1_000_000)
    found, missing = later.match(logged(stats("b"), stats("a")))
    assert (sorted(found["path"].to_pylist()), missing.num_rows) == (["a", "b"], 0)
    kinds = sorted(path.suffix for path in (tmp_path / "_retention" / "stats").iterdir())
    assert kinds == [".arrow", ".arrow" if small_rows else ".parquet"]


def test_a_flipped_bit_makes_a_small_file_unknown(tmp_path: Path, known: StatisticsCache) -> None:
    known.add(stats("a"))
    [place] = (tmp_path / "_retention" / "stats").iterdir()
    content = bytearray(place.read_bytes())
    content[content.index(b"a", len(content) // 2)] ^= 1
    place.write_bytes(content)
    later = StatisticsCache(Layout(str(tmp_path), "ORDERS"), lambda: NOW_MS * 1_000_000)
    assert later.match(logged(stats("a")))[1].num_rows == 1


GATHERED = {
    "mostly dead": (3, 1, 0, 1),
    "some young": (3, 1, 2, 3),
    "nothing live": (3, 0, 0, 0),
    "half live": (2, 1, 0, 1),
    "mostly live": (3, 2, 0, 3),
}
"""Old cached files, the number of live ones, young files of a commit in progress, and the remaining rows."""


@pytest.mark.parametrize(("old", "live", "young", "left"), GATHERED.values(), ids=GATHERED)
def test_rows_of_dead_files_go_once_they_are_as_many_as_those_of_live_ones(
    tmp_path: Path, known: StatisticsCache, old: int, live: int, young: int, left: int
) -> None:
    tables = [stats(f"old-{number}", modified_ms=NOW_MS - DAY_MS) for number in range(old)]
    for table in (*tables, *(stats(f"young-{number}") for number in range(young))):
        known.add(table)
    alive = logged(*tables).slice(0, live)
    for _ in range(2):
        known.gather(alive)
        names = [path.stem for path in (tmp_path / "_retention" / "stats").iterdir()]
        assert sum(int(name.rpartition("-")[2]) for name in names) == left
        assert len(names) == (old if left == old and not young else 1)
    again = StatisticsCache(Layout(str(tmp_path), "ORDERS"), lambda: NOW_MS * 1_000_000)
    assert again.match(alive)[1].num_rows == 0
