from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_dags.ending import Ending, code_of_spark, read_ending
from airflow_dags.engine import Engine
from airflow_dags.options import OPTIONS, arguments_of
from airflow_dags.question import is_shown, question
from airflow_dags.steps import (
    APPLY,
    COMPACT,
    PARAMETERS,
    PLAN,
    RECLAIM,
    SYNC,
    NotPlannedError,
    OtherReleaseError,
    Past,
    Step,
    is_nothing,
    parameter_mistake,
    past_of,
    reason_of_nothing,
    reason_to_skip,
    refusal,
    verify_step,
)
from tests.support.jobs import run_job
from tests.support.sandboxes import ORDERS, lines, opened

ALL: dict[str, Any] = {
    "streams": [],
    "as_of": None,
    "dry_run": False,
    "allow_large": None,
    "allow_rewind": None,
}
PLANNED = {"as_of_ns": 7, "report": "/r/plan.json", "needs_approval": "because"}
YES = {"chosen_options": ["Approve"]}
GIVEN = {"log_format": "json", "debug": True, "wait": "1s", "max_time": "1h", "max_bytes": "1GiB"}
"""Options of jobs, except a file (it differs by stream), and one that needs a package."""
ENGINE = Engine("/srv/retention.yaml", "/e", "/r")


def test_a_report_of_another_release_is_named() -> None:
    """An earlier release's report of a plan has no `refused`."""
    entry = {"removed_messages": 1, "removed_bytes": 2, "by_rule": {}, "guards": []}
    sentence = r"^the report of plan has no '\w+', so the engine and these DAGs are of different releases; .*DIR`$"
    with pytest.raises(OtherReleaseError, match=sentence):
        PLAN.counts(entry)


@pytest.mark.parametrize("step", [SYNC, PLAN, APPLY, COMPACT, RECLAIM], ids=lambda step: step.name)
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
    assert APPLY.arguments(past_of(ALL, PLANNED, None, None)) == ["--as-of=7", "--skip-superseded"]
    with pytest.raises(NotPlannedError, match="clear the task"):
        APPLY.arguments(past_of(ALL, None, None, None))


@pytest.mark.parametrize(
    ("changed", "answer", "question", "argument"),
    [
        ({}, YES, "/r/plan.json", "--approved=/r/plan.json"),
        ({}, {"chosen_options": ["Reject"]}, "/r/plan.json", "--as-of=7"),
        # Planned again while the question waited: the approved plan is another one.
        ({"report": "/r/plan.2.json"}, YES, "/r/plan.json", "--as-of=7"),
        # Cleared and planned again, and no approval is required this time.
        ({"needs_approval": None}, YES, "/r/plan.json", "--as-of=7"),
        ({}, YES, None, "--as-of=7"),
    ],
)
def test_an_approval_is_of_the_plan_that_was_shown(
    changed: dict[str, Any], answer: dict[str, Any], question: str | None, argument: str
) -> None:
    past = past_of(ALL, PLANNED | changed, answer, question)
    assert APPLY.arguments(past) == [argument, "--skip-superseded"]


@pytest.mark.parametrize("step", [APPLY, COMPACT, RECLAIM], ids=lambda step: step.name)
def test_each_step_behind_a_rejected_plan_says_so(step: Step) -> None:
    answer = {"chosen_options": ["Reject"], "responded_by_user": {"id": "1", "name": "Ada"}}
    past = past_of(ALL, PLANNED, answer, "/r/plan.json")
    sentence = "A: Ada has rejected the plan; the stream is kept as it is"
    assert reason_to_skip(step, "A", past) == sentence
    assert reason_to_skip(SYNC, "A", past) is None
    # The rejection was of another plan.
    assert reason_to_skip(step, "A", past_of(ALL, PLANNED, answer, "/r/other.json")) is None


def test_nothing_goes_while_another_run_asks() -> None:
    past = past_of(ALL, PLANNED, None, None, "scheduled__1")
    reason = "A: nothing is removed until the question of run scheduled__1 is answered"
    assert reason_to_skip(APPLY, "A", past) == reason
    assert reason_to_skip(COMPACT, "A", past) is None
    needless = past_of(ALL, PLANNED | {"needs_approval": None}, None, None, "scheduled__1")
    assert reason_to_skip(APPLY, "A", needless) is None


@pytest.mark.parametrize(
    ("conf", "changed", "reason"),
    [
        ({}, {}, None),
        ({"dry_run": True}, {"dry_run": True}, None),
        (
            {"dryrun": True},
            {"dryrun": True},
            "unknown parameter `dryrun`; did you mean `dry_run`",
        ),
        (
            {"x": 1},
            {"x": 1},
            "unknown parameter `x`; nothing was done; start another run, with parameters among `streams`",
        ),
        ({"dry_run": True}, {}, "`dry_run`, because `core.dag_run_conf_overrides_params` is off"),
        ({"allow_large": "once"}, {"allow_large": "once"}, "`allow_large` and chooses no streams"),
        (
            {"allow_large": "once", "streams": ["A"]},
            {"allow_large": "once", "streams": ["A"]},
            None,
        ),
    ],
)
def test_a_parameter_that_would_not_do_what_it_says_is_one_sentence(
    conf: dict[str, Any], changed: dict[str, Any], reason: str | None
) -> None:
    mistake = parameter_mistake(conf, ALL | changed)
    assert mistake is None if reason is None else re.search(reason, str(mistake))


def test_every_parameter_of_the_form_is_known() -> None:
    assert set(PARAMETERS) == set(ALL)


def test_what_is_lifted_has_its_reason_on_record() -> None:
    params = ALL | {"streams": ["A"], "allow_large": "too much test data", "allow_rewind": "x"}
    assert PLAN.arguments(Past(params)) == ["--allow-large", "--allow-rewind"]
    assert APPLY.arguments(past_of(params, PLANNED | {"needs_approval": None}, None, None)) == [
        "--as-of=7",
        "--skip-superseded",
        "--allow-large",
        "--allow-rewind",
        "--reason=too much test data; x",
    ]


def test_a_plan_that_apply_would_refuse_fails_unless_nothing_is_to_be_applied() -> None:
    counts = {"refused": "A: the pass takes all"}
    assert refusal(PLAN, counts, Past(ALL)) == "apply would refuse this plan: A: the pass takes all"
    assert refusal(PLAN, counts, Past(ALL | {"dry_run": True})) is None
    assert refusal(PLAN, {"refused": None}, Past(ALL)) is None
    assert refusal(RECLAIM, {}, Past(ALL)) is None


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
    for step in (PLAN, APPLY, APPLY, COMPACT, RECLAIM, verify_step("100%")):
        # The job accepts every option that a DAG may give it.
        report = tmp_path / "report.json"
        words = ("--engine", "local", "--stream", "ORDERS", "--report-file", str(report))
        extra = ("--as-of", "2026-01-01") if step in (PLAN, APPLY) else ()
        more = ("--configured",) if step is COMPACT else extra
        given = arguments_of(
            GIVEN | {"metrics_file": f"{tmp_path}/{{stream}}.{{step}}.prom"}, step.name, "O.K"
        )
        assert run_job(step.job, tmp_path, *words, *more, *given).returncode == 0
        counts = step.counts(read_ending(0, report).entry)
        counted.append(counts)
        nothing.append(is_nothing(step, counts))
    assert [counts["messages"] for counts in counted[:3]] == [4, 4, 0]
    assert nothing[:4] == [False, False, True, True]
    assert (counted[-1]["verdict"], nothing[-1]) == ("ok", True)
    assert json.dumps(counted)
    written = {path.name.split(".")[1] for path in tmp_path.glob("O_K-*.prom")}
    # tests/cli/test_syncing.py has the step that needs a server.
    assert written | {"sync"} == set(OPTIONS["metrics_file"])
    assert {*GIVEN, "metrics_file", "openlineage"} == set(OPTIONS)
    plan = counted[0] | {"as_of_ns": 7, "report": "/r/plan.json", "needs_approval": "4 would go"}
    text = question(ENGINE, "ORDERS", plan)
    assert "| sequences | 1 to 4 |" in text
    assert "| oldest | 2020-09-13 12:26:40 UTC |" in text
    assert "| as of | 1970-01-01 00:00:00 UTC |" in text
    undo = "`/e/bin/retention --config /srv/retention.yaml undo RUN` restores the messages"
    assert f"Within 7d (`grace`) {undo}" in text


def test_the_counts_of_a_table_are_rows_and_its_owner_compacts_it(tmp_path: Path) -> None:
    ats = pa.array([0, 1_900_000_000], pa.int64())
    write_deltalake(tmp_path / "lake", pa.table({"at": ats}))
    entry = {"name": "events", "location": "lake", "time": "at", "unit": "s", "max_age": "30d"}
    text = json.dumps({"warehouse": "w", "tables": [entry | {"approve": True}]})
    (tmp_path / "retention.yaml").write_text(text)
    report, counts = tmp_path / "report.json", dict[str, Any]()
    for step in (PLAN, APPLY, RECLAIM):
        past = Past(ALL, counts.get("plan") and counts["plan"] | {"as_of_ns": 0}, str(report))
        words = ("--engine", "local", "--stream", "events", "--report-file", str(report))
        done = run_job(step.job, tmp_path, *words, *step.arguments(past))
        assert done.returncode == 0, done.stderr
        counts[step.name] = step.counts(read_ending(0, report).entry)
    assert (counts["plan"]["rows"], counts["apply"]["rows"]) == (1, 1)
    assert counts["apply"]["run"]
    assert not is_nothing(APPLY, counts["apply"])
    assert is_nothing(RECLAIM, counts["reclaim"])
    why = reason_to_skip(COMPACT, "events", Past(ALL, counts["plan"]))
    assert why == "events: a table in place is compacted by its owner"
    asked = question(ENGINE, "events", counts["plan"] | {"as_of_ns": 7, "report": "/r/plan.json"})
    assert "| rows | 1 |" in asked
    assert "undo RUN` restores the rows" in asked


def test_a_question_is_asked_once_more_only_as_it_stands(tmp_path: Path) -> None:
    kept = tmp_path / "A.approve.md"
    answers = [is_shown(text, kept) for text in ("3 would go", "3 would go", "4 would go")]
    assert answers == [True, True, False]


def test_a_pass_that_was_overtaken_names_the_run() -> None:
    counts = {"superseded_by": {"run": "2026-x", "as_of_ns": 9}}
    assert reason_of_nothing("A", counts).startswith(
        "A: superseded: run 2026-x has applied a later"
    )
    assert reason_of_nothing("A", {"messages": 0}) == "A: nothing to do"


def test_relative_paths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"config: retention\.yaml is not an absolute path"):
        Engine("retention.yaml", "/e", "/r")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"wate": "5m"},
            "'wate' is not an option of jobs in a DAG; the options are metrics_file, ",
        ),
        ({"metrics_file": "/m/one.prom"}, "one file that every task would overwrite"),
    ],
)
def test_options_that_no_job_takes_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Engine("/srv/retention.yaml", "/e", "/r", options=options)


def test_a_page_next_to_a_report_has_an_address_where_browsers_reach_the_reports(
    tmp_path: Path,
) -> None:
    engine = Engine("/srv/retention.yaml", "/e", str(tmp_path), pages="https://lake.example.com/r/")
    report = tmp_path / "nightly" / "manual__2026-01-01T00:00:00+00:00" / "A B.plan.1.json"
    plan = {
        **PLANNED,
        "report": str(report),
        "grace": "7d",
        "guards": [],
        "by_rule": {},
        "bytes": 0,
    }
    assert "| page |" not in question(engine, "A", plan)
    report.parent.mkdir(parents=True)
    report.with_suffix(".html").touch()
    address = "https://lake.example.com/r/nightly/manual__2026-01-01T00%3A00%3A00%2B00%3A00/A%20B.plan.1.html"
    assert f"| page | [{address}]({address}) |" in question(engine, "A", plan)
    assert "| page |" not in question(replace(engine, pages=None), "A", plan)
    with pytest.raises(ValueError, match="pages: 'reports' is not an address; write where"):
        replace(engine, pages="reports")
