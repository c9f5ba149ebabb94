from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.apply.orphans import orphans
from retention.core.neighbours import runs_within
from retention.engines.select import Engines
from retention.planners import subject_shuffle
from retention.planners.table import plan_table
from tests.support.laying import SECOND, START, File, Laid, lay, warehouse_with

NOW = START + 10_000 * SECOND
EACH = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six segments, the last with two interleaved files; subjects recur in most of them."""
    laid = [
        Laid(seq=seq, subject=f"s.{seq * seq % 47}.é", ts_ns=START + seq * SECOND)
        for seq in range(1, 6 * EACH + 1)
    ]
    segments = [laid[at : at + EACH] for at in range(0, len(laid), EACH)]
    files = [File(one[0].seq, one) for one in segments[:-1]]
    files += [File(segments[-1][0].seq, segments[-1][half::2]) for half in (0, 1)]
    lay(warehouse_with(tmp_path / "w", "delta", NOW).stream("ORDERS").opened, files)
    return tmp_path / "w"


@pytest.mark.parametrize("limit", [1, 3, 7])
@pytest.mark.parametrize("range_bytes", [300, 1 << 30])
def test_dealing_subjects_out_changes_no_plan(
    folder: Path, monkeypatch: pytest.MonkeyPatch, limit: int, range_bytes: int
) -> None:
    warehouse = warehouse_with(folder, "delta", NOW, "local", max_msgs_per_subject=limit)
    whole = warehouse.stream("ORDERS").plan().plan
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", 0)
    monkeypatch.setattr(subject_shuffle, "RANGE_BYTES", range_bytes)
    monkeypatch.setattr(tempfile, "tempdir", str(folder.parent))
    dealt = warehouse.stream("ORDERS").plan()
    assert dealt.plan.plan_id == whole.plan_id
    assert whole.removed_messages > 0
    assert list(folder.parent.glob("retention-*")) == []
    removed = whole.actions.removed.table
    gone = next(iter(removed["first_seq"].to_pylist()), 1)
    assert dealt.explain(gone).goes


def test_only_totals_by_span_come_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", 0)
    warehouse = warehouse_with(folder, "delta", NOW, "local", max_msgs_per_subject=1)
    with Engines("local") as engines:
        decided = plan_table(warehouse.stream("ORDERS").opened, NOW, engines).planning.decided
        assert isinstance(decided.subjects.excess, subject_shuffle.ShuffledExcess)
        assert len(decided.subjects.excess.messages) == len(decided.spans)
        places = list(map(Path, decided.subjects.excess.places.values()))
        assert places
        assert all(place.is_file() for place in places)
    assert not any(place.exists() for place in places)


def test_a_lost_digest_is_made_again_while_it_is_dealt_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = warehouse_with(folder, "delta", NOW, "local", max_msgs_per_subject=2)
    whole = warehouse.stream("ORDERS").plan().plan
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", 0)
    lost, *_ = sorted((folder / "streams/ORDERS/_retention/subjects").rglob("*.parquet"))
    lost.unlink()
    assert warehouse.stream("ORDERS").plan().plan.plan_id == whole.plan_id
    assert lost.is_file()


def test_what_a_killed_pass_left_of_an_exchange_is_an_orphan(folder: Path) -> None:
    opened = warehouse_with(folder, "delta", NOW).stream("ORDERS").opened
    left = folder / "streams/ORDERS/_retention/exchange/ab/dealt-0.arrow"
    left.parent.mkdir(parents=True)
    left.touch()
    assert [orphan.location for orphan in orphans(opened)] == [str(left)]


def digest(file: int, subjects: Sequence[str]) -> pa.Table:
    count = len(subjects)
    columns = [np.full(count, file), sorted(subjects), np.ones(count), np.arange(count)]
    return pa.table(
        dict(zip(subject_shuffle.DEALT.names, columns, strict=True)), subject_shuffle.DEALT
    )


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
def test_ranges_have_about_the_same_number_of_rows(shape: str) -> None:
    digests = [digest(file, subjects) for file, subjects in enumerate(SHAPES[shape])]
    ends = runs_within([one.num_rows for one in digests], 5_000)
    tasks = [digests[start:end] for start, end in ends]
    rows = [sum(one.num_rows for one in task) for task in tasks]
    samples = [
        subject_shuffle.sampled(iter, (task, subject_shuffle.SAMPLES * count // 5_000))
        for task, count in zip(tasks, rows, strict=True)
    ]
    bounds = subject_shuffle.bounds_of(samples, sum(rows) // 5_000)
    ranges = np.zeros(len(bounds) + 1, np.int64)
    for task in tasks:
        places = pc.search_sorted(bounds, pa.concat_tables(task)["subject"], side="right")
        ranges += np.bincount(places.to_numpy(), minlength=len(ranges))
    assert ranges.max() < 1.5 * ranges.mean()


def test_digests_without_rows_have_one_range() -> None:
    nothing = subject_shuffle.sampled(iter, ([digest(0, [])], 3))
    bounds = subject_shuffle.bounds_of([nothing], 3)
    assert len(bounds) == 0
    assert list(subject_shuffle.deal_subjects(iter, bounds, [digest(0, [])])) == []


def test_one_subject_has_one_range() -> None:
    bounds = subject_shuffle.bounds_of([pa.array(["s"] * 100), pa.array(["s"])], 9)
    parts = subject_shuffle.deal_subjects(iter, bounds, [digest(0, ["s"]), digest(1, ["s"])])
    assert [number for number, _ in parts] == [1]
