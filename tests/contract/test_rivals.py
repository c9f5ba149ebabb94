"""Concurrent processes: no sequence is assigned twice, no row is lost, no removal is reverted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from retention.storage import files
from tests.contract.conftest import STORES, Stage
from tests.contract.streams import append, live, sequences
from tests.support.shares import THOROUGH

APPENDER = """
import sys, time
from retention.errors import ConflictError
from tests.contract.conftest import Stage
from tests.contract.streams import appending, rows, staged
format_, root, writer, rounds = sys.argv[1:]
store = Stage(format_, root).open()
for batch in range(1, int(rounds) + 1):
    while True:
        snapshot = store.snapshot()
        first = snapshot.counters.next_seq[0]
        added = staged(store, rows(range(first, first + 5)))
        try:
            store.commit(appending(added, first + 5, 1, {writer: batch}), snapshot)
            break
        except ConflictError:
            store.discard(added["path"].to_pylist())
"""

REMOVER = """
import sys, time
from tests.contract.conftest import Stage
from tests.contract.streams import latest, removing, rows, staged
format_, root, _, rounds = sys.argv[1:]
store = Stage(format_, root).open()
for _ in range(int(rounds)):
    snapshot, files = latest(store)
    first = files.slice(0, 1)
    row = first.to_pylist()[0]
    rest = range(row["min_seq"] + 1, row["max_seq"] + 1)
    store.commit(removing(first, staged(store, rows(rest)) if rest else None), snapshot)
"""


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("stage", STORES, indirect=True)
def test_three_appenders_and_a_remover_leave_exactly_the_rest(stage: Stage) -> None:
    store = stage.open()
    store.create()
    append(store, range(1, 21))  # more than the remover removes, even if it always commits first
    slow, quick = (3, 6) if THOROUGH else (2, 4)
    rounds = slow if files.is_remote(str(stage.root)) else quick
    scripts = [(APPENDER, "a"), (APPENDER, "b"), (APPENDER, "c"), (REMOVER, "-")]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, stage.format, str(stage.root), name, str(rounds)]
        )
        for script, name in scripts
    ]
    assert [process.wait(timeout=300) for process in running] == [0, 0, 0, 0]
    last = 20 + 3 * rounds * 5
    assert sequences(stage.open()) == list(range(rounds + 1, last + 1))
    counters = store.inventory(store.snapshot()).counters
    assert counters.next_seq[0] == last + 1
    assert [counters.batches[writer] for writer in "abc"] == [rounds] * 3
    assert sum(live(store)["messages"].to_pylist()) == last - rounds
