from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.contenders import WHERE, load
from benchmarks.tasks import TTL_NAMES, Size
from benchmarks.ttl import DUE, floor, make_ttl_table, ttl_task
from benchmarks.worker import run
from tests.support.shares import THOROUGH

SIZE = Size(messages=500, segments=8, subjects=50, many_subjects=50)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.mark.thorough
@pytest.mark.parametrize("name", TTL_NAMES if THOROUGH else TTL_NAMES[:1])
def test_all_contenders_leave_the_messages_whose_ttl_is_not_over(name: str, tmp_path: Path) -> None:
    asked = ttl_task(name, SIZE)
    make_ttl_table(tmp_path / "source", SIZE, asked)
    left = set()
    for contender in [load(way) for way in WHERE if "spark" not in way]:
        if name not in contender.tasks:
            continue
        contender.open()
        done = run(contender, tmp_path / "source", tmp_path / "place", asked)
        left.add((done["messages"], done["seq_sum"]))
        contender.close()
    stays = SIZE.total // 4 if name == "ttl-drop" else SIZE.total * (1 - DUE)
    assert [messages for messages, _ in left] == [pytest.approx(stays, abs=1)]


def test_the_floor_is_a_copy_of_all_bytes(tmp_path: Path) -> None:
    make_ttl_table(tmp_path / "source", SIZE, ttl_task("ttl", SIZE))
    told = floor(tmp_path / "source", tmp_path / "floor", runs=1)
    files = (tmp_path / "source").rglob("segment=*/*.parquet")
    assert told["bytes_written"] in (None, pytest.approx(sum(f.stat().st_size for f in files), 0.1))
    assert not (tmp_path / "floor").exists()
