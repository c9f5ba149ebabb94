from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.contenders import load
from benchmarks.data import survivors
from benchmarks.floors import floor_of
from benchmarks.tasks import Size
from benchmarks.ttl import make_ttl_table, ttl_task


def test_the_floor_writes_the_rows_and_the_files_that_a_pass_writes(tmp_path: Path) -> None:
    asked = ttl_task("ttl", size := Size(100, 3, 10, 10))
    source, done, place = (tmp_path / name for name in ("source", "done", "floor"))
    make_ttl_table(source, size, asked)
    ours = load("ours")
    ours.place(source, done, asked)
    ours.run(done, asked)
    floor_of(done, source, place, asked)()
    copies = [pq.read_table(file).num_rows for file in place.glob("data-*")]
    assert sum(copies) == survivors(ours.files(done))[0]
    assert len(copies) == 3
    others = [file.read_bytes() for file in place.glob("other-*")]
    intents = [file.read_bytes() for file in done.glob("runs/*/*.json")]
    assert len(intents) == 2
    assert all(intent in others for intent in intents)
