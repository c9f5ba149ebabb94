"""`verify` on Spark: the same result as in this process, and each file read once, even after an interruption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.engines.select import EngineName
from retention.engines.spark.engine import SparkEngine
from retention.storage.crash_points import Step, watched_by
from retention.verify import run
from retention.verify.data_files import VerifyTask
from retention.verify.finding import Verification
from tests.retention.verify.test_damages import Planted, flip
from tests.support.sandboxes import NOW, configured, lines

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(params=["delta", "parquet"])
def stream(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Planted:
    """A stream of several files, of which a task reads one and a round two."""
    orders = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 100, "segment_size": "1KiB"}
    configured(tmp_path, orders, format=request.param)
    planted = Planted(tmp_path, request.param)
    planted.warehouse.new_stream("ORDERS").publish(lines(120))
    planted.warehouse.stream("ORDERS").plan().apply()
    assert len(planted.data) > 5
    monkeypatch.setattr(run, "TASK_FILES", 1)
    monkeypatch.setattr(run, "ROUND_TASKS", 2)
    return planted


def verified(planted: Planted, engine: EngineName) -> Verification:
    config = planted.folder / "retention.yaml"
    return open_warehouse(config, engine=engine, clock=lambda: NOW).stream("ORDERS").verify()


def nothing(planted: Planted) -> None:
    """Leave the stream as it is."""


def lose_a_digest(planted: Planted) -> None:
    planted.record_of(planted.data[1]).unlink()


def damage_and_lose_digests(planted: Planted) -> None:
    lose_a_digest(planted)
    flip(planted.data[0], 60)
    planted.data[2].unlink()
    flip(planted.record_of(planted.data[3]), 40)


@pytest.mark.parametrize(
    ("change", "verdict", "checks"),
    [
        (nothing, "ok", []),
        (lose_a_digest, "unverified", []),
        (damage_and_lose_digests, "damaged", ["content", "record", "size"]),
    ],
    ids=["ok", "unverified", "damaged"],
)
def test_spark_finds_what_this_process_finds(
    stream: Planted, change: Callable[[Planted], None], verdict: str, checks: list[str]
) -> None:
    change(stream)
    local, spark = (verified(stream, engine) for engine in ("local", "spark"))
    assert (local.verdict, sorted(each.check for each in local.damages)) == (verdict, checks)
    assert replace(spark, damages=(), unverified=()) == replace(local, damages=(), unverified=())
    assert set(spark.damages) == set(local.damages)
    assert set(spark.unverified) == set(local.unverified)


class _KilledError(BaseException):
    """The end of a process in the middle of a verification."""


def test_an_interrupted_verification_on_spark_reads_each_file_once(
    stream: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    mapping = SparkEngine.map

    def watched(engine: Any, act: Any, tasks: Sequence[Any], weights: Sequence[int]) -> Any:
        sent.extend(
            each.file.path for task in tasks if isinstance(task, VerifyTask) for each in task.files
        )
        return mapping(engine, act, tasks, weights)

    noted: list[Step] = []

    def kill(step: Step) -> None:
        noted.extend([step] if step == Step.VERIFYING_NOTED else [])
        if len(noted) == 3:  # the head, and two rounds
            raise _KilledError

    monkeypatch.setattr(SparkEngine, "map", watched)
    with pytest.raises(_KilledError), watched_by(kill):
        verified(stream, "spark")
    assert len(sent) == 4
    for path in sent:
        flip(Path(stream.warehouse.stream("ORDERS").opened.layout.live(path)), 60)
    result = verified(stream, "spark")
    assert (result.verdict, result.resumed_files) == ("ok", 4), "what was read is not read again"
    assert sorted(sent) == sorted(set(sent))
    assert len(sent) == result.files == result.read_files
    assert len(verified(stream, "spark").damages) == 4, "a later one reads every file"


def test_what_one_engine_began_the_other_finishes(stream: Planted) -> None:
    noted: list[Step] = []

    def kill(step: Step) -> None:
        noted.extend([step] if step == Step.VERIFYING_NOTED else [])
        if len(noted) == 2:
            raise _KilledError

    with pytest.raises(_KilledError), watched_by(kill):
        verified(stream, "spark")
    result = verified(stream, "local")
    assert (result.verdict, result.resumed_files, result.read_files) == ("ok", 2, result.files)
