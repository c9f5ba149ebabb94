from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from retention.apply.orphans import orphans
from retention.engines.select import Engines
from retention.planners import subject_ranges, subject_shuffle
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
    monkeypatch.setattr(subject_ranges, "RANGE_BYTES", range_bytes)
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
