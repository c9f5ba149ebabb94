"""Tasks retried by Spark: transient storage failures are tolerated, and attempts never touch each other's files."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from retention.apply import stage
from retention.apply.orphans import orphans
from retention.datafile.rewrite import copy_remaining
from retention.engines.spark import append
from retention.engines.spark.attempts import attempts_of, may_pass
from retention.engines.spark.session import TASK_ATTEMPTS
from retention.errors import DamagedError, StorageError, UsageError
from retention.storage.errors import storage_error
from retention.stores.layout import is_ours
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.topics import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from retention.context.context import OpenedStream

pytestmark = pytest.mark.spark
Act = Callable[..., Any]


def failing_once(act: Act, flag: Path) -> Act:
    """A function that does its work, and then raises a storage failure the first time."""

    def acting(*given: Any, **named: Any) -> Any:
        done = act(*given, **named)
        try:
            flag.touch(exist_ok=False)
        except FileExistsError:
            return done
        raise OSError(errno.EIO, "the storage failed")

    return acting


def left(opened: OpenedStream) -> list[str]:
    """The data files left by attempts, all named by the engine."""
    names = [o.location for o in orphans(opened) if o.what == "data file that no commit names"]
    assert all(map(is_ours, names))
    return names


def test_a_pass_goes_on_when_a_task_failed_after_it_had_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "failed"
    monkeypatch.setattr(stage, "rewrite_or_hide", failing_once(copy_remaining, flag))
    warehouse = warehouse_with(tmp_path / "w", "delta", START + 99 * SECOND, "spark", max_msgs=15)
    opened = warehouse.stream("ORDERS").opened
    lay(opened, even_segments(3, 10))
    [outcome] = warehouse.apply()
    assert outcome.exit_code == 0, outcome.sentence
    assert flag.exists()
    assert held(warehouse)["seq"].to_pylist() == list(range(16, 31))
    assert len(left(opened)) == 1, "the file of the first attempt stays and is accounted for"


@pytest.mark.thorough
def test_appended_frames_go_on_when_a_task_failed_after_it_had_written(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = append._write_part
    monkeypatch.setattr(append, "_write_part", failing_once(write, tmp_path / "append"))
    warehouse = warehouse_with(tmp_path / "w", "delta", START + 99 * SECOND)
    stream = warehouse.new_stream("ORDERS")
    frame = spark.range(40).selectExpr("'a' as subject", "cast(id as string) as payload")
    stream.append(frame.repartition(2), writer="w", batch_id=1)
    assert held(warehouse)["seq"].to_pylist() == list(range(1, 41))
    monkeypatch.setattr(append, "_write_part", failing_once(write, tmp_path / "topic"))
    world = World(tmp_path / "t", "parquet", {"partitions": 1})
    world.topic.append(frame.select("payload"), "w", 1)
    assert [row["seq"] for row in world.rows()] == list(range(40))
    for opened, flag in ((stream.opened, "append"), (world.topic.opened, "topic")):
        assert (tmp_path / flag).exists()
        assert len(left(opened)) == 1


def test_storage_that_goes_on_failing_is_told_as_what_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> Any:
        with (tmp_path / "tries").open("a") as tries:
            tries.write(".")
        raise storage_error(str(tmp_path), OSError(errno.ENOSPC, ""))

    monkeypatch.setattr(append, "_write_part", failing)
    stream = warehouse_with(tmp_path / "w", "delta", START).new_stream("ORDERS")
    with pytest.raises(StorageError, match="No space left on device"):
        stream.append(spark.sql("SELECT 'a' subject, 'x' payload"))
    assert (tmp_path / "tries").read_text() == "." * TASK_ATTEMPTS


def test_only_what_may_pass_is_tried_again(spark: SparkSession) -> None:
    assert attempts_of(spark) == TASK_ATTEMPTS
    denied = StorageError("denied")
    denied.exit_code = UsageError.exit_code
    found = [may_pass(one) for one in (OSError(), StorageError(), denied, DamagedError())]
    assert found == [True, True, False, False]
