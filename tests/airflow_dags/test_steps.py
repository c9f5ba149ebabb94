from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_dags.ending import Ending, code_of_spark, read_ending
from airflow_dags.engine import Engine
from airflow_dags.steps import (
    APPLY,
    COMPACT,
    PLAN,
    RECLAIM,
    NotPlannedError,
    Past,
    Step,
    is_nothing,
    past_of,
    reason_to_skip,
)
from tests.support.jobs import run_job
from tests.support.sandboxes import ORDERS, lines, opened

ALL: dict[str, Any] = {"streams": [], "as_of": None, "dry_run": False}
PLANNED = {"as_of_ns": 7, "report": "/r/plan.json", "needs_approval": "because"}
YES = {"chosen_options": ["Approve"]}


@pytest.mark.parametrize("step", [PLAN, APPLY, COMPACT, RECLAIM], ids=lambda step: step.name)
def test_only_chosen_streams_are_worked_on(step: Step) -> None:
    assert reason_to_skip(step, "A", Past(ALL)) is None
    assert reason_to_skip(step, "A", Past(ALL | {"streams": ["A", "B"]})) is None
    assert reason_to_skip(step, "A", Past(ALL | {"streams": ["B"]}))
    dry = reason_to_skip(step, "A", Past(ALL | {"dry_run": True}))
    assert (dry is None) == (step is PLAN)


def test_the_instant_comes_from_the_form_and_then_from_the_plan() -> None:
    assert PLAN.arguments(Past(ALL)) == []
    assert PLAN.arguments(Past(ALL | {"as_of": ""})) == []
    assert PLAN.arguments(Past(ALL | {"as_of": "now-1d"})) == ["--as-of=now-1d"]
    assert APPLY.arguments(past_of(ALL, PLANNED, None, None)) == ["--as-of=7"]
    with pytest.raises(NotPlannedError, match="clear the task"):
        APPLY.arguments(past_of(ALL, None, None, None))


@pytest.mark.parametrize(
    ("changed", "answer", "question", "argument"),
    [
        ({}, YES, "/r/plan.json", "--approved=/r/plan.json"),
        ({}, {"chosen_options": ["Reject"]}, "/r/plan.json", "--as-of=7"),
        # Planned anew while the question waited: what was approved is another plan.
        ({"report": "/r/plan.2.json"}, YES, "/r/plan.json", "--as-of=7"),
        # Cleared and planned anew, and nobody has to be asked this time.
        ({"needs_approval": None}, YES, "/r/plan.json", "--as-of=7"),
        ({}, YES, None, "--as-of=7"),
    ],
)
def test_an_approval_is_of_the_plan_that_was_shown(
    changed: dict[str, Any], answer: dict[str, Any], question: str | None, argument: str
) -> None:
    past = past_of(ALL, PLANNED | changed, answer, question)
    assert APPLY.arguments(past) == [argument]


@pytest.mark.parametrize(
    ("code", "again"),
    [
        *((code, False) for code in (1, 2, 4, 5, 6, 52, 130)),
        *((code, True) for code in (75, 137, 143, -15, -9)),
    ],
)
def test_what_may_help_is_tried_again(code: int, again: bool) -> None:
    assert Ending(code, None).is_to_be_tried_again == again


def test_the_sentence_is_the_jobs(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert "ended from outside" in read_ending(-9, report).sentence
    report.write_text("{")
    assert "ended from outside" in read_ending(-9, report).sentence
    report.unlink()
    done = run_job("plan", tmp_path, "--stream", "A", "--report-file", str(report))
    ending = read_ending(done.returncode, report)
    assert (ending.code, f"plan: {ending.sentence}\n") == (2, done.stderr)
    assert code_of_spark(ValueError("Cannot execute: x. Error code is: 75.")) == 75
    assert code_of_spark(ValueError("no Java")) == 1


def test_the_counts_are_those_of_the_jobs_reports(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS | {"compact": {"min_files": 2}}).stream("ORDERS")
    for _ in range(2):
        stream.publish(lines(2, first_ns=1_600_000_000 * 10**9))
    nothing = []
    counted = []
    for step in (PLAN, APPLY, APPLY, COMPACT, RECLAIM):
        report = tmp_path / "report.json"
        words = ("--engine", "local", "--stream", "ORDERS", "--report-file", str(report))
        extra = () if step is RECLAIM or step is COMPACT else ("--as-of", "2026-01-01")
        more = ("--configured",) if step is COMPACT else extra
        assert run_job(step.job, tmp_path, *words, *more).returncode == 0
        counts = step.counts(read_ending(0, report).entry)
        counted.append(counts)
        nothing.append(is_nothing(step, counts))
    assert [counts["messages"] for counts in counted[:3]] == [4, 4, 0]
    assert nothing[:4] == [False, False, True, True]
    assert json.dumps(counted)


def test_relative_paths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"config: retention\.yaml is no absolute path"):
        Engine("retention.yaml", "/e", "/r")
