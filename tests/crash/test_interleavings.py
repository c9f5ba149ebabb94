"""One side is paused after each of its steps while another acts: the result equals a serial order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from retention.storage.crash_points import PAUSE_AT, Step
from retention.stores.parquet import settle_files
from tests.support.crashes import TWICE
from tests.support.interleavings import MINE, THEIRS, Match, attempt, duels, left_by, play

ROOT = Path(__file__).parents[2]
FORMATS = ("delta", "parquet")
WORKERS = 2
LIKE_APPLY = ("publish", "apply-after-taking-over", "foreign-delete", "recreation")
"""An earlier plan is applied like a new one, so only `make long NAME=crash` tests it against all acts."""
RIVALS = ("reclaim", "undo-after-taking-over")
"""One deletes files that the other restores; these pairs are always tested."""

STORES = {
    (mine, theirs): [format_ for format_ in FORMATS if theirs in duels(mine, format_)]
    for mine in MINE
    for theirs in THEIRS
    if TWICE or mine != "apply-plan" or theirs in LIKE_APPLY
}
PAIRS = [pair for pair, formats in STORES.items() if formats]


FEW = [(*pair, STORES[pair][-(turn % 2)]) for turn, pair in enumerate([RIVALS, *PAIRS[::97]])]
CASES = [(*pair, format_) for pair in PAIRS for format_ in STORES[pair]] if TWICE else FEW
"""`make test` runs some pairs on one store, `make long NAME=crash` all pairs on all stores."""
UNSEEN_PAIR = ("publish", "foreign-append", "parquet")
UNSEEN = f"{'/'.join(UNSEEN_PAIR)} at {Step.ENTRY_SYNCED}"
"""A file added to a directory is not part of any commit. If it is added between our last listing
and our log entry, the next reader detects it, names both files and stops."""


@pytest.mark.always
def test_whatever_happens_while_one_side_stands_still_is_as_if_they_had_taken_turns(
    tmp_path: Path, record_testsuite_property: Any
) -> None:
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=spawned) as pool:
        played = [
            pool.submit(play, str(tmp_path / "-".join(case)), case, every=TWICE) for case in CASES
        ]
        counts, wrongs = zip(*(match.result() for match in played), strict=True)
    record_testsuite_property("interleavings", sum(counts))
    print(f"{sum(counts)} interleavings of {len(CASES)} pairs")
    found = [wrong for several in wrongs for wrong in several]
    refused = [wrong for wrong in found if wrong.startswith(UNSEEN) and "stands twice" in wrong]
    assert [wrong for wrong in found if wrong not in refused] == []
    assert len(refused) == (UNSEEN_PAIR in CASES)


def test_every_act_has_a_rival() -> None:
    assert {mine for mine, _ in PAIRS} == set(MINE)
    assert {theirs for _, theirs in PAIRS} == set(THEIRS)


ACTING = """
import sys
from pathlib import Path
from tests.support.interleavings import MINE
MINE[sys.argv[1]].act(Path(sys.argv[2]))
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("format_", "mine", "theirs", "step"),
    [
        ("delta", "apply", "publish", Step.DELTA_COMMITTING),
        ("parquet", "apply", "same-apply-after-taking-over", Step.ENTRY_SYNCED),
        ("parquet", "publish", "read", Step.FILE_MOVED),
    ],
)
def test_a_process_that_is_stopped_for_real_ends_as_a_side_that_stands_still(
    tmp_path: Path,
    format_: str,
    mine: str,
    theirs: str,
    step: Step,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settle_files, "PATIENCE_S", 0.0)
    match = Match(tmp_path, mine, theirs, format_)
    command = [sys.executable, "-c", ACTING, mine, str(match.base)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | {PAUSE_AT: step})
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    other = attempt(match.theirs, match.base)
    process.send_signal(signal.SIGCONT)
    ended = process.wait(60)
    assert match.fits(left_by(match.base), mine=ended == 0, theirs=other is None)
