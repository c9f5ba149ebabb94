from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.core.accepted_times import ALL_TIMES
from retention.dialects.arriving_rows import ArrivingRows
from retention.dialects.jetstream import JetStream
from retention.engines.local import LocalEngine
from retention.engines.spark import stream_writer
from retention.engines.spark.append import rows_of_tasks
from retention.engines.spark.stream_writer import BlockWriter, TaskOutcome
from retention.errors import RetentionError, UsageError
from retention.layout import stored_blocks
from tests.support.plain_store import opened_stream

NOW = 1_700_000_000_000_000_000


@dataclass
class Target:
    """A target that remembers what was appended."""

    arriving: ArrivingRows
    directory: str
    appended: list[tuple[int, str, int]] = field(default_factory=list)

    def append(self, blocks: Any, directory: str, query: str, batch: int) -> None:
        assert Path(directory).is_dir()
        self.appended.append((sum(block.rows for block in blocks), query, batch))


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setattr(stream_writer, "_query", lambda: "q")
    dialect = JetStream.of(opened_stream(tmp_path / "stream").config)
    return Target(ArrivingRows(dialect, NOW, ALL_TIMES), str(tmp_path / "exchange"))


def in_a_task(target: Target, *payloads: bytes | None) -> TaskOutcome:
    """The outcome of a task, which gets a pickled writer."""
    writer: BlockWriter = pickle.loads(pickle.dumps(BlockWriter(target)))  # noqa: S301
    rows = {"payload": pa.array(payloads, pa.large_binary()), "subject": ["s"] * len(payloads)}
    return writer.write(iter([pa.RecordBatch.from_pydict(rows)]))


def left(target: Target) -> list[Path]:
    return [*Path(target.directory).rglob("*")]


def test_a_commit_appends_the_blocks_of_all_tasks_and_deletes_them(target: Target) -> None:
    outcomes = [in_a_task(target, b"b", b"a"), in_a_task(target, b"c")]
    killed = in_a_task(target, b"of a killed attempt")
    assert isinstance(killed.result[1], list)
    BlockWriter(target).commit(outcomes, 7)
    assert target.appended == [(3, "q", 7)]
    assert left(target) == []


def test_an_abort_deletes_the_blocks_of_the_tasks_that_ended(target: Target) -> None:
    outcome = in_a_task(target, b"a")
    assert left(target) != []
    with pytest.raises(RetentionError, match="without the results of all tasks; nothing was"):
        BlockWriter(target).commit([None, outcome], 7)
    BlockWriter(target).abort([None, outcome], 7)
    assert (target.appended, left(target)) == ([], [])


def test_an_error_of_a_task_ends_the_commit_and_leaves_nothing(target: Target) -> None:
    outcomes = [in_a_task(target, b"a"), in_a_task(target, None)]
    with pytest.raises(UsageError, match="payload is null"):
        BlockWriter(target).commit(outcomes, 7)
    assert (target.appended, left(target)) == ([], [])


def test_rows_that_one_process_cannot_sort_are_refused(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [block for n in b"ab" for block in in_a_task(target, bytes([n]), b"c").result[1]]
    monkeypatch.setattr(stored_blocks, "MOST_RANGE_BYTES", 1)
    with pytest.raises(UsageError, match="the 4 rows of this batch are too far from the order of"):
        rows_of_tasks(LocalEngine(), target.arriving.dialect, blocks, target.directory)
