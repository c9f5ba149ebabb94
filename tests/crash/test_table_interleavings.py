"""One side is paused after each of its steps while another changes the same table: as if they had taken turns."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.crashes import TWICE
from tests.support.table_interleavings import KINDS, pairs, play

WORKERS = 2
FEW = [("erase", "hold-of-erased", "vectors"), ("hold", "apply", "copies")]
CASES = [(*pair, kind) for pair in pairs() for kind in KINDS] if TWICE else FEW
"""`make long NAME=crash` runs all pairs on tables with and without deletion vectors."""

AT_ONCE = "erase-under-hold/other-erase/copies"
"""In turn, the second is refused: the copies that the first one wrote have held rows. At once, both are copies of the
original files, and nothing held is deleted."""


def test_whatever_happens_to_a_table_meanwhile_is_as_if_they_had_taken_turns(
    tmp_path: Path, record_testsuite_property: Any
) -> None:
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=spawned) as pool:
        played = [
            pool.submit(partial(play, every=TWICE), tmp_path / "-".join(case), *case)
            for case in CASES
        ]
        counts, wrongs = zip(*(match.result() for match in played), strict=True)
    record_testsuite_property("table-interleavings", sum(counts))
    print(f"{sum(counts)} interleavings of {len(CASES)} pairs")
    found = [wrong for several in wrongs for wrong in several]
    at_once = [wrong for wrong in found if wrong.startswith(AT_ONCE) and "done / done" in wrong]
    assert [wrong for wrong in found if wrong not in at_once] == []
