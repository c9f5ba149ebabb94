"""Folding of evidence: nothing is lost or duplicated by a killed, repeated or concurrent fold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from retention.errors import BusyError, DamagedError
from retention.evidence import fold as folding
from retention.evidence.fold import Prepared, fold_evidence, forget_evidence
from retention.evidence.months import RemovalEvidence, month_files
from retention.storage import files
from retention.storage.crash_points import Step, watched_by
from tests.support.evidence import run_name, scattered
from tests.support.kills import killed_at

RUNS = [run_name(number) for number in range(4)]


def source(run: str, first: int = 1) -> Callable[[], Iterable[pa.Table]]:
    return lambda: [scattered(run, first + np.arange(5)), scattered(run, first + 10 + np.arange(5))]


def sources(*numbers: int) -> dict[str, Callable[[], Iterable[pa.Table]]]:
    return {RUNS[number]: source(RUNS[number], 100 * number + 1) for number in numbers}


def counts(root: Path, runs: Iterable[str] = RUNS) -> list[int]:
    """The messages of each run in the evidence, by run and by sequence."""
    evidence = RemovalEvidence(str(root))
    by_run = [sum(rows.num_rows for rows in evidence.of_run(run)) for run in runs]
    for number, count in enumerate(by_run):
        found = evidence.covering("2026-11", 0, 100 * number + 3)
        assert [rows.num_rows for rows in found.values()] == ([1] if count else [])
    return by_run


def test_runs_are_added_and_a_month_has_one_file(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), sources(2))
    fold_evidence(str(tmp_path), sources(0, 3))
    fold_evidence(str(tmp_path), {run_name(0, "20261203"): source(run_name(0, "20261203"))})
    assert counts(tmp_path) == [10, 0, 10, 10]
    assert [len(names) for names in listed(tmp_path).values()] == [1, 1]
    assert list(listed(tmp_path)) == ["2026-11", "2026-12"]


def listed(root: Path) -> dict[str, list[str]]:
    return month_files(str(root))


def test_folding_again_changes_nothing(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), sources(0, 1))
    other = source(RUNS[1], 5000)
    fold_evidence(str(tmp_path), {RUNS[1]: other} | sources(2))
    assert counts(tmp_path) == [10, 10, 10, 0]


def test_runs_that_took_nothing_write_nothing(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), {RUNS[0]: list})
    assert listed(tmp_path) == {}


@pytest.mark.parametrize("step", [Step.EVIDENCE_FOLDED, Step.EVIDENCE_REPLACED])
def test_a_fold_that_is_killed_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, step: Step
) -> None:
    fold_evidence(str(tmp_path), sources(0))
    with killed_at(step):
        fold_evidence(str(tmp_path), sources(1))
    assert counts(tmp_path) == [10, 10, 0, 0]
    fold_evidence(str(tmp_path), sources(1))
    assert counts(tmp_path) == [10, 10, 0, 0]
    assert [len(names) for names in listed(tmp_path).values()] == [1]


def test_a_rival_that_stood_still_takes_nothing_away(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), sources(0))

    def overtake(at: Step) -> None:
        if at is Step.EVIDENCE_FOLDED:
            with watched_by(lambda _: None):
                fold_evidence(str(tmp_path), sources(2))

    with watched_by(overtake):
        fold_evidence(str(tmp_path), sources(1))
    assert counts(tmp_path) == [10, 10, 10, 0]


def test_a_fold_whose_files_a_rival_replaced_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold_evidence(str(tmp_path), sources(0))
    honest = files.lengths

    def overtaken(places: list[str]) -> list[int | None]:
        lengths = honest(places)
        monkeypatch.undo()
        fold_evidence(str(tmp_path), sources(2))
        return lengths

    monkeypatch.setattr(files, "lengths", overtaken)
    with pytest.raises(BusyError, match="another reclaim has folded the evidence of 2026-11"):
        fold_evidence(str(tmp_path), sources(1))
    assert counts(tmp_path) == [10, 0, 10, 0]


def test_a_reader_whose_file_is_replaced_meanwhile_goes_on_in_the_next(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), sources(0, 1))
    evidence = RemovalEvidence(str(tmp_path))
    assert len(list(evidence.of_run(RUNS[0]))) == 1
    fold_evidence(str(tmp_path), sources(2))
    assert sum(rows.num_rows for rows in evidence.of_run(RUNS[1])) == 10
    fold_evidence(str(tmp_path), sources(3))
    assert len(evidence.covering("2026-11", 0, 103)) == 1


def test_a_long_file_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold_evidence(str(tmp_path), sources(0))
    [first] = listed(tmp_path)["2026-11"]
    monkeypatch.setattr(folding, "_MOST_REWRITTEN", 100)
    fold_evidence(str(tmp_path), sources(0, 1))
    assert first in listed(tmp_path)["2026-11"]
    assert len(listed(tmp_path)["2026-11"]) == 2
    assert counts(tmp_path) == [10, 10, 0, 0]


def test_forgotten_runs_leave_and_a_month_without_rows_is_gone(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), sources(0, 1))
    forget_evidence(str(tmp_path), [RUNS[0], RUNS[3], run_name(0, "20250101")])
    assert counts(tmp_path) == [0, 10, 0, 0]
    forget_evidence(str(tmp_path), [RUNS[1]])
    assert listed(tmp_path) == {}


def test_a_damaged_file_stays_and_nothing_is_folded(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), sources(0))
    [name] = listed(tmp_path)["2026-11"]
    place = Path(str(tmp_path), name)
    place.write_bytes(place.read_bytes()[:-20])
    with pytest.raises(DamagedError, match="restore it from a copy, or move it away"):
        fold_evidence(str(tmp_path), sources(1))
    assert listed(tmp_path)["2026-11"] == [name]


def test_after_a_kill_forgetting_leaves_one_file(tmp_path: Path) -> None:
    fold_evidence(str(tmp_path), sources(0, 1))
    with killed_at(Step.EVIDENCE_FOLDED):
        forget_evidence(str(tmp_path), [RUNS[0]])
    forget_evidence(str(tmp_path), [RUNS[0]])
    assert counts(tmp_path) == [0, 10, 0, 0]
    assert [len(names) for names in listed(tmp_path).values()] == [1]


def test_what_is_prepared_waits_for_its_fold(tmp_path: Path) -> None:
    Prepared(str(tmp_path)).add(table() for table in sources(0, 1).values())
    assert Prepared(str(tmp_path)).runs() == {RUNS[0], RUNS[1]}
    assert counts(tmp_path) == [0, 0, 0, 0]
    assert sum(rows.num_rows for rows in Prepared(str(tmp_path)).of_run(RUNS[1])) == 10
    Prepared(str(tmp_path)).drop({RUNS[0]})
    assert Prepared(str(tmp_path)).runs() == {RUNS[0], RUNS[1]}
    Prepared(str(tmp_path)).drop({RUNS[0], RUNS[1], RUNS[2]})
    assert list(tmp_path.iterdir()) == []
