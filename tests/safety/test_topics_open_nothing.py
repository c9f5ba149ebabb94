"""Removals of topics use statistics only: no data file is opened, for any content."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from tests.safety.test_opens_nothing import data_files_of
from tests.support.inotify import opens_below
from tests.support.topic_crashes import NAME, import_logs, with_logs
from tests.support.trees import scramble

NOW = 1_800_000_000 * 10**9


def scrambled(folder: Path, format_: str, profile: str) -> Warehouse:
    """A topic with random bytes as data files; all except the last segments of its two partitions are due and read."""
    with_logs(folder, format_)
    place = folder / "retention.yaml"
    config = json.loads(place.read_text())
    config["topics"][0]["profile"] = profile
    place.write_text(json.dumps(config))
    warehouse = open_warehouse(place, engine="local", clock=lambda: NOW)
    import_logs(warehouse, folder)
    warehouse.topic(NAME).store_offset(0, "consumer", "7", 19)
    random = np.random.default_rng(7)
    files = data_files_of(folder, NAME)
    assert len(files) == 5
    for file in files:
        scramble(file, random)
    return warehouse


def data_files_among(paths: set[str]) -> list[str]:
    return [path for path in paths if "/segment=" in path and "/subjects/" not in path]


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@pytest.mark.parametrize("profile", ["modern", "v8"])
def test_a_pass_over_a_topic_opens_no_data_file(tmp_path: Path, format_: str, profile: str) -> None:
    warehouse = scrambled(tmp_path, format_, profile)
    with opens_below(tmp_path / "streams") as opened:
        planned = warehouse.topic(NAME).plan()
        [outcome] = warehouse.apply()
        state = warehouse.topic(NAME).state()
    assert outcome.value is not None, outcome.sentence
    assert data_files_among(set(opened)) == []
    assert any(path.endswith(".json") for path in opened)
    assert planned.plan.removed_messages == outcome.value.removed_messages == 25
    assert outcome.value.segments == {"dropped": 3, "rewritten": 0, "kept": 2}
    assert (outcome.value.files_read, outcome.value.bytes_read) == (0, 0)
    assert state.messages == 15


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_deleting_segments_and_undoing_it_opens_no_data_file(tmp_path: Path, format_: str) -> None:
    warehouse = scrambled(tmp_path, format_, "modern")
    topic = warehouse.topic(NAME)
    with opens_below(tmp_path / "streams") as opened:
        report = topic.delete_segments(0, 2).apply()
        restored = warehouse.undo(report.run)["restored_messages"]
    assert data_files_among(set(opened)) == []
    assert report.removed_messages == restored == 20
    assert topic.state().messages == 40


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_the_watch_sees_a_data_file_of_a_topic_that_is_opened(tmp_path: Path, format_: str) -> None:
    with_logs(tmp_path, format_)
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: NOW)
    import_logs(warehouse, tmp_path)
    with opens_below(tmp_path / "streams") as opened:
        warehouse.topic(NAME).explain(3)
    assert len(set(data_files_among(set(opened)))) == 1
