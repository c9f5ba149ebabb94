from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.contenders import WHERE, load
from benchmarks.data import make_table
from benchmarks.tasks import NAMES, Size, task
from benchmarks.worker import run
from tests.support.shares import THOROUGH

SIZE = Size(messages=500, segments=8, subjects=50, many_subjects=1_500)
ON_SPARK = [name for name in WHERE if "spark" in name and "cluster" not in name]
ELSEWHERE = [name for name in WHERE if "spark" not in name]

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    directory = tmp_path_factory.mktemp("tables")
    total_bytes = make_table(directory / "few", SIZE, SIZE.subjects)
    make_table(directory / "many", SIZE, SIZE.many_subjects)
    return directory, total_bytes


def outcomes(
    names: list[str], asked: str, sources: tuple[Path, int], directory: Path
) -> Iterator[dict[str, Any]]:
    for name in names:
        contender = load(name)
        if asked not in contender.tasks:
            continue
        contender.open()
        wanted = task(asked, SIZE, sources[1])
        yield run(contender, sources[0] / wanted.table, directory / name, wanted)
        contender.close()


@pytest.mark.parametrize("asked", NAMES if THOROUGH else ["last"])
def test_all_contenders_leave_the_same_messages(
    asked: str, sources: tuple[Path, int], tmp_path: Path
) -> None:
    left = [
        (outcome["messages"], outcome["seq_sum"])
        for outcome in outcomes(ELSEWHERE, asked, sources, tmp_path)
    ]
    assert len(left) >= 5
    assert len(set(left)) == 1
    assert 0 < left[0][0] < SIZE.total


@pytest.mark.thorough
@pytest.mark.parametrize(("asked", "messages"), [("drop", 1_000), ("cut", 750), ("last", 50)])
def test_a_task_leaves_what_its_title_says(
    asked: str, messages: int, sources: tuple[Path, int], tmp_path: Path
) -> None:
    (outcome,) = outcomes(["ours"], asked, sources, tmp_path)
    assert outcome["messages"] == messages
    assert outcome["bytes_written"] is None or outcome["bytes_written"] > 0


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("asked", ["cut", "last"] if THOROUGH else ["cut"])
def test_contenders_on_spark_leave_the_same_messages_as_ours(
    asked: str, sources: tuple[Path, int], tmp_path: Path
) -> None:
    left = {
        (outcome["messages"], outcome["seq_sum"])
        for outcome in outcomes(["ours", *ON_SPARK], asked, sources, tmp_path)
    }
    assert len(left) == 1


def test_the_report_compares_medians_with_ours() -> None:
    def runs(*seconds: float) -> list[dict[str, Any]]:
        cost = {
            "cpu_seconds": 0.05,
            "bytes_read": 2_000_000,
            "bytes_written": None,
            "messages": 1_000,
        }
        return [cost | {"seconds": second} for second in seconds]

    result = {
        "task": "drop",
        "title": "drop 6 of 8 segments",
        "messages": 1_000,
        "contenders": [
            report.summary("duckdb", runs(0.4, 0.1, 9.0)),
            report.summary("ours", runs(0.2, 0.1, 0.3)),
        ],
        "failed": {},
    }
    lines = report.markdown([result]).splitlines()
    assert lines[-2:] == [
        "| **ours** | 0.200 (0.100 to 0.300) | 1.00 | 0.050 | 2.00 | not counted |",
        "| duckdb | 0.400 (0.100 to 9.000) | 2.00 | 0.050 | 2.00 | not counted |",
    ]
    assert report.matrix([result, result | {"task": "cut", "contenders": []}]).splitlines() == [
        "| seconds (times ours) | `drop` | `cut` |",
        "|---|---|---|",
        "| ours | 0.200 |  |",
        "| duckdb | 0.400 (2.00) |  |",
    ]


def test_a_page_keeps_what_stands_around_its_figures() -> None:
    document = {
        "date": "2026-01-02T03:04:05+00:00",
        "system": "Linux",
        "python": "3.11",
        "libraries": {"polars": "2"},
        "size": {"segments": 8, "messages": 500},
        "runs": 5,
        "results": [],
    }
    page = "before\n<!-- figures -->\nold\n<!-- end of figures -->\nafter\n"
    written = report.on_page(page, document)
    assert written.startswith("before\n<!-- figures -->\n2026-01-02; Linux; Python 3.11, polars 2;")
    assert written.endswith("<!-- end of figures -->\nafter\n")
    assert "old" not in written
    assert report.on_page(written, document) == written
