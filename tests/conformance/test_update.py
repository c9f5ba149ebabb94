"""Messages kept by real servers after an update: every case by a plan of its rows, a share on stores and engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from retention.config.load import Config
from retention.core.message_rows import complete_rows
from retention.schemas.deadlines import NEVER
from tests.support.cases import EVERYTHING, judged_by, matrix, shares
from tests.support.update_cases import (
    Case,
    bring_in,
    expected,
    left_in,
    load_cases,
    warehouse_of,
)
from tests.support.worlds import NEXT_SEQ, Message, World, plan_of, removed_by

T = 1_795_300_000_123_456_789
"""The instant that all cases are shifted to, so that one pass covers them."""

CASES = load_cases()
BY_ID = {case.id: case for case in CASES}
SHARE = shares(CASES)
AT_THEIR_OWN_INSTANTS = CASES[3::30]

Judged = Callable[[str, str], dict[str, dict[str, Any]]]


def judge(folder: Path, cases: Sequence[Case], format_: str, engine: str) -> dict[str, Any]:
    """One pass over the cases: each stream's content before, the report of the run, and the content after."""
    warehouse = warehouse_of(folder, cases, format_, engine)
    bring_in(warehouse, cases, folder)
    names = [case.id for case in cases]
    before = {name: left_in(warehouse, name) for name in names}
    outcomes = {outcome.stream: outcome for outcome in warehouse.apply(names, T)}
    assert [outcome.sentence for outcome in outcomes.values() if outcome.error] == []
    after = {name: left_in(warehouse, name) for name in names}
    reports = {name: outcome.value for name, outcome in outcomes.items()}
    assert any(report and report.files_read for report in reports.values())  # rows had to be read
    again = {one.stream: one.value for one in warehouse.apply(names, T)}
    return {
        name: {
            "before": before[name],
            "after": after[name],
            "report": reports[name],
            "again": again[name],
        }
        for name in names
    }


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    @cache
    def once(format_: str, engine: str) -> dict[str, dict[str, Any]]:
        cases = [case.at(T) for case in SHARE[format_, engine]]
        return judge(tmp_path_factory.mktemp(f"{format_}-{engine}"), cases, format_, engine)

    return once


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The configuration of all cases' streams."""
    return warehouse_of(tmp_path_factory.mktemp("config"), CASES, "delta", "local").config


def message_of(row: dict[str, Any]) -> Message:
    """A row as a message of the plain model."""
    never = row["deadline_ns"] == NEVER
    deadline_ns = None if never else row["deadline_ns"]
    marks = {"never": never, "silent": row["marker"], "deadline_ns": deadline_ns}
    return Message(row["seq"], row["subject"], row["ts_ns"], row["size"], **marks)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_plan_removes_what_the_server_removed(case: Case, config: Config) -> None:
    rows = complete_rows(case.rows, case.config["storage"]).to_pylist()
    messages = tuple(message_of(row) for row in rows)
    half = len(messages) // 2
    files = [(part[0].seq, part) for part in (messages[:half], messages[half:]) if part]
    world = World(tuple(files), files[-1][0] if files else 1)
    stream = config.stream(case.id)
    assert stream is not None
    plan = plan_of(world, stream.policy(), case.as_of_ns)
    assert {row["seq"] for row in rows} - set(removed_by(world, plan)) == set(case.expect["kept"])
    moved = case.last_seq + 1 - NEXT_SEQ
    markers = [(row["seq"] + moved, row["subject"]) for row in plan.actions.markers.to_pylist()]
    assert markers == [(one["seq"], one["subject"]) for one in case.expect["markers"]]
    after = (
        case.last_seq + 1 if plan.actions.sequences is None else plan.actions.sequences[1] + moved
    )
    assert after == case.expect["last_seq"] + 1


@pytest.mark.parametrize(("format_", "engine", "case_id"), matrix(SHARE))
def test_a_pass_leaves_what_the_server_left(
    judged: Judged, request: pytest.FixtureRequest, format_: str, engine: str, case_id: str
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    case = BY_ID[case_id].at(T)
    found = judged(format_, engine)[case_id]
    assert [row["seq"] for row in found["before"]["rows"]] == case.rows["seq"].to_pylist()
    assert found["before"]["last_seq"] == case.last_seq
    assert found["after"] == expected(case)
    report = found["report"]
    kept = set(case.expect["kept"])
    removed = [row for row in found["before"]["rows"] if row["seq"] not in kept]
    assert report.removed_messages == len(removed) == sum(report.by_rule.values())
    assert report.markers == len(case.expect["markers"])
    if not case.uses_ttl_or_markers:
        assert report.removed_bytes == found["before"]["bytes"] - found["after"]["bytes"]
        assert found["again"].removed_messages == 0


@pytest.mark.parametrize("format_", ["delta", "delta-vectors", "parquet"])
def test_cases_at_their_own_instants_end_as_the_server_ended(tmp_path: Path, format_: str) -> None:
    warehouse = warehouse_of(tmp_path, AT_THEIR_OWN_INSTANTS, format_, "local")
    bring_in(warehouse, AT_THEIR_OWN_INSTANTS, tmp_path)
    for case in AT_THEIR_OWN_INSTANTS:
        [outcome] = warehouse.apply([case.id], case.as_of_ns)
        assert outcome.error is None, outcome.sentence
        assert left_in(warehouse, case.id) == expected(case)


def test_all_cases_are_judged() -> None:
    assert len(CASES) == 600
    assert judged_by(SHARE, "local") == (600 if EVERYTHING else 40)
    assert judged_by(SHARE, "spark") == (600 if EVERYTHING else 10)
