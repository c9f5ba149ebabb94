from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.compaction import (
    compact_task,
    last_seconds,
    make_hollow_segments,
    make_small_files,
    nightly,
    nightly_text,
)
from benchmarks.contenders import WHERE, load
from benchmarks.processes import ContenderError
from benchmarks.tasks import COMPACT_NAMES
from benchmarks.worker import run
from tests.support.shares import THOROUGH

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.mark.thorough
@pytest.mark.parametrize("name", COMPACT_NAMES if THOROUGH else COMPACT_NAMES[:1])
def test_contenders_merge_the_same_files_and_lose_nothing(name: str, tmp_path: Path) -> None:
    source, asked = tmp_path / "source", compact_task(name)
    if name == "compact-small":
        make_small_files(source, files=16, messages=5, segments=2)
    else:
        make_hollow_segments(source, messages=50, segments=4)
    left, files = set(), {}
    for way in (way for way in WHERE if "spark" not in way):
        contender = load(way)
        if name not in contender.tasks:
            continue
        contender.open()
        done = run(contender, source, tmp_path / way, asked)
        left.add((done["messages"], done["seq_sum"]))
        files[way] = done["files"]
        contender.close()
    assert len(left) == 1
    open_segment = name == "compact-hollow"
    assert files == dict.fromkeys(("deltalake", "duckdb", "polars"), 1 + (not open_segment)) | {
        "ours": 2
    }
    assert min(last_seconds(source, tmp_path / "read", asked)) > 0


@pytest.mark.thorough
def test_a_month_counts_what_is_written_again(tmp_path: Path) -> None:
    rows = [nightly(name, tmp_path / name, 3, 8, 5) for name in ("ours", "deltalake")]
    ours, theirs = (row["amplification"] for row in rows)
    assert 1 < ours < theirs
    assert [row["files"] for row in rows] == [3, 1]
    assert nightly_text(rows).count("\n") == 3
    with pytest.raises(ContenderError, match="duckdb works on no table"):
        nightly("duckdb", tmp_path / "none", 1, 1, 1)
