from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tables.contenders import CONTENDERS
from benchmarks.tables.data import TASKS, Size, TaskName, make_table


@pytest.mark.parametrize("task", TASKS)
def test_contenders_leave_the_same_rows(tmp_path: Path, task: TaskName) -> None:
    size = Size(rows=2_000, files=4)
    for vectors in (False, True):
        make_table(tmp_path / f"{vectors}", size, vectors=vectors)
    left = set()
    for name, kind in CONTENDERS.items():
        if "park" not in name and task in kind.tasks:
            contender, place = kind(), tmp_path / f"{task}-{name}"
            contender.open()
            contender.place(tmp_path / f"{kind.vectors}", place)
            contender.run(place, task, size)
            left.add(contender.survivors(place))
            contender.close()
    assert len(left) == 1
    assert 0 < min(left)[0] < size.rows
