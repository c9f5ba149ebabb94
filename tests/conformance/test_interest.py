"""Messages kept by real servers for consumers: every case by the rule on rows, a share on stores and engines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from retention.consumers.state import from_json
from retention.interest.interest import interest_of
from retention.rules.jetstream.interest import released_rows
from retention.stores.consumer_table import ConsumerRecord
from tests.support.cases import EVERYTHING, judged_by, matrix, shares
from tests.support.interest_cases import Case, bring_in, left_in, load_cases, warehouse_of

CASES = load_cases()
BY_ID = {case.id: case for case in CASES}
SHARE = shares(CASES)
UNMATCHED = ("keep", "remove")

Judged = Callable[[str, str], dict[str, dict[str, Any]]]


def judge(
    folder: Path, cases: Sequence[Case], format_: str, engine: str
) -> dict[str, dict[str, Any]]:
    """Passes that keep unmatched messages, remove them, and repeat: the content of each stream after each."""
    warehouse = warehouse_of(folder, cases, format_, engine, "keep")
    bring_in(warehouse, cases, folder)
    strict = warehouse_of(folder, cases, format_, engine, "remove")
    names = [case.id for case in cases]
    as_of_ns = max(case.as_of_ns for case in cases)
    found: dict[str, dict[str, Any]] = {name: {"held": []} for name in names}
    for passing in (None, warehouse, strict, strict):
        outcomes = [] if passing is None else list(passing.apply(names, as_of_ns))
        assert [outcome.sentence for outcome in outcomes if outcome.error] == []
        for outcome in outcomes:
            found[outcome.stream].setdefault("by_rule", []).append(vars(outcome.value)["by_rule"])
        for name in names:
            found[name]["held"].append(left_in(warehouse, name))
    return found


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    @cache
    def once(format_: str, engine: str) -> dict[str, dict[str, Any]]:
        folder = tmp_path_factory.mktemp(f"{format_}-{engine}")
        found: dict[str, dict[str, Any]] = {}
        for batch, cases in groupby(
            SHARE[format_, engine], lambda case: case.id.rpartition("-")[0]
        ):
            # Names and subjects are distinct only within a batch.
            found |= judge(folder / batch, list(cases), format_, engine)
        return found

    return once


@pytest.mark.parametrize("unmatched", UNMATCHED)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rows_stay_that_some_consumer_needs(case: Case, unmatched: Any) -> None:
    interests = [
        interest_of(
            ConsumerRecord(name, one["config"], from_json(one["state"])),
            tuple(case.config["subjects"]),
        )
        for name, one in case.consumers.items()
    ]
    gone = released_rows(case.rows, interests, unmatched)
    assert case.rows["seq"].to_numpy()[~gone].tolist() == case.kept(unmatched)


@pytest.mark.parametrize(("format_", "engine", "case_id"), matrix(SHARE))
def test_a_pass_leaves_what_consumers_need(
    judged: Judged,
    request: pytest.FixtureRequest,
    format_: str,
    engine: str,
    case_id: str,
) -> None:
    if engine == "spark":
        request.getfixturevalue("spark")
    case = BY_ID[case_id]
    found = judged(format_, engine)[case_id]
    held = [case.rows["seq"].to_pylist(), case.kept("keep"), case.kept("remove")]
    assert found["held"] == [*held, held[-1]]
    removed = [len(held[0]) - len(held[1]), len(held[1]) - len(held[2]), 0]
    rule = case.config["retention"]
    assert found["by_rule"] == [{rule: count} if count else {} for count in removed]


def test_all_cases_are_judged() -> None:
    assert len(CASES) == 318
    assert judged_by(SHARE, "local") == (318 if EVERYTHING else 22)
    assert judged_by(SHARE, "spark") == (318 if EVERYTHING else 6)
