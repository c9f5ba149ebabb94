from __future__ import annotations

from pathlib import Path

import pytest

from retention.core import progress
from retention.datafile.parquet import write_messages
from tests.contract.streams import rows
from tests.support.sandboxes import commands

FILES = 300


def test_a_table_of_many_tiny_files_of_another_writer_is_read_with_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    told = commands(tmp_path, {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 10})
    line = '{"subject": "orders.0", "data": "x", "ts_ns": 1000000000}'
    done = told.run("publish", "ORDERS", "-", stdin=line)
    assert done.exit_code == 0, done.output
    directory = next(tmp_path.glob("streams/ORDERS/messages/partition=0/segment=*"))
    for number in range(2, FILES + 2):
        write_messages(str(directory / f"theirs-{number}.parquet"), [rows([number])])
    done = told.run("plan", "ORDERS")
    assert done.exit_code == 0, done.output
    assert f"reading files that no log describes: {FILES:,} of {FILES:,}" in done.stderr
    assert f"{FILES + 1 - 10} messages" in done.stdout
