from __future__ import annotations

import json
import random
from pathlib import Path
from unittest.mock import Mock

import pytest

from retention.core.units import HOUR
from retention.inspect import state
from retention.inspect.subject_count import count_subjects
from retention.planners import subject_ranges, subject_shuffle
from tests.support.sandboxes import NOW, opened

SETTINGS = {"name": "ORDERS", "subjects": ["orders.>"]}


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_subjects_are_counted_in_memory_and_by_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", held)
    monkeypatch.setattr(subject_ranges, "RANGE_BYTES", 1_000)
    stream = opened(tmp_path, SETTINGS, segment_span="1m").stream("ORDERS")
    choose = random.Random(5)
    subjects = [f"orders.{choose.randrange(40)}" for _ in range(90)]
    lines = [
        json.dumps({"subject": subject, "data": "", "ts_ns": NOW + number * 10**10})
        for number, subject in enumerate(subjects)
    ]
    for start in range(0, len(lines), 30):
        stream.publish(lines[start : start + 30])
    position = stream.opened.store.snapshot()
    inventory = stream.opened.store.inventory(position)
    assert inventory.files.num_rows > 10
    assert count_subjects(stream.opened, inventory) == len({*subjects})
    assert stream.state().num_subjects == len({*subjects})


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_subjects_counted_for_a_limit_are_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(subject_shuffle, "HELD_BYTES", held)
    again = Mock()
    monkeypatch.setattr(state, "count_subjects", again)
    settings = SETTINGS | {"max_msgs_per_subject": 2}
    stream = opened(tmp_path, settings, segment_span="1m").stream("ORDERS")
    stream.publish(
        [
            json.dumps({"subject": f"orders.{number % 3}", "data": "", "ts_ns": NOW + number})
            for number in range(5)
        ]
    )
    assert stream.state().num_subjects == 3
    again.assert_not_called()


def test_a_table_without_files_has_no_subjects(tmp_path: Path) -> None:
    stream = opened(tmp_path, SETTINGS | {"max_age": "1h"}, now_ns=NOW).stream("ORDERS")
    stream.publish([json.dumps({"subject": "orders.1", "data": "", "ts_ns": NOW - 5 * HOUR})])
    stream.plan().apply()
    inventory = stream.opened.store.inventory(stream.opened.store.snapshot())
    assert inventory.files.num_rows == 0
    assert count_subjects(stream.opened, inventory) == 0
