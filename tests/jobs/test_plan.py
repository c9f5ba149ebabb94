from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from tests.retention.views.test_json_schemas import wrong
from tests.support.jobs import Ended, run_job
from tests.support.sandboxes import ORDERS, configured, lines, opened

ROOT = Path(__file__).parents[2]
ASKING = {**ORDERS, "approve": {"above_messages": 5}}
OTHER = {
    "name": "OTHER",
    "subjects": ["other.>"],
    "max_msgs": 3,
    "approve": {"above_bytes": "1GiB"},
}
LONG_AGO = 1_600_000_000 * 10**9
PAST = ("--as-of", "2026-01-01T00:00:00Z")


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """ORDERS with eight old messages that need an approval; OTHER with five that do not."""
    warehouse = opened(tmp_path, ASKING, OTHER)
    warehouse.stream("ORDERS").publish(lines(8, first_ns=LONG_AGO))
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    return warehouse


def planned(folder: Path, *arguments: str) -> dict[str, Any]:
    report = folder / "plan.json"
    done = run("plan", folder, *arguments, "--report-file", str(report))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    assert wrong("report.plan.schema.json", document) == []
    return document


def _report(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def run(job: str, folder: Path, *arguments: str) -> Ended:
    return run_job(job, folder, "--engine", "local", *arguments)


def test_the_job_plans_reports_and_changes_nothing(warehouse: Warehouse, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "retention.jobs.plan", "--engine", "local", *PAST]
    done = subprocess.run(
        [*command, "--report-file", "report.json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("plan: 2 streams done, 0 failed; would remove 10 messages (")
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    orders, other = report["streams"]
    assert report["as_of_ns"] == 1_767_225_600 * 10**9
    assert (orders["removed_messages"], orders["would_change"]) == (8, True)
    assert (
        "would remove 8 messages, and `approve` lets a job remove no more than 5"
        in (orders["needs_approval"])
    )
    assert (other["removed_messages"], other["needs_approval"]) == (2, None)
    assert warehouse.stream("ORDERS").state().messages == 8


def test_streams_are_selected_as_by_every_job(warehouse: Warehouse, tmp_path: Path) -> None:
    configured(tmp_path, {**ASKING, "tags": ["pii"]}, OTHER)
    for selection in (("--stream", "ORD*"), ("--tag", "pii")):
        [entry] = planned(tmp_path, *PAST, *selection)["streams"]
        assert entry["stream"] == "ORDERS"


def test_without_approval_nothing_goes(warehouse: Warehouse, tmp_path: Path) -> None:
    done = run("retain", tmp_path, *PAST)
    assert done.returncode == 5
    assert "ORDERS: would remove 8 messages" in done.stderr
    assert "--approved" in done.stderr
    done = run("retain", tmp_path, *PAST, "--stream", "ORDERS")
    assert done.returncode == 4
    counts = [warehouse.stream(name).state().messages for name in ("ORDERS", "OTHER")]
    assert counts == [8, 3]


def test_what_was_approved_goes_at_its_instant(warehouse: Warehouse, tmp_path: Path) -> None:
    report = planned(tmp_path, *PAST)
    retained = tmp_path / "retained.json"
    approved = ("--approved", str(tmp_path / "plan.json"), "--report-file", str(retained))
    done = run("retain", tmp_path, *approved)
    assert "retain: 2 streams done, 0 failed; removed 10 messages" in done.stdout
    document = json.loads(retained.read_text(encoding="utf-8"))
    assert document["as_of_ns"] == report["as_of_ns"]
    assert [entry["plan_id"] for entry in document["streams"]] == [
        entry["plan_id"] for entry in report["streams"]
    ]
    again = run("retain", tmp_path, *approved)
    assert "2 streams done, 0 failed; removed 0 messages" in again.stdout
    spent = warehouse.stream("ORDERS").history()[0]["run"]
    assert (
        f"retain: ORDERS: the approved report was applied before, by run {spent}, which stands; nothing was removed "
        "now\n"
    ) in again.stderr
    [entry] = [one for one in _report(retained)["streams"] if one["stream"] == "ORDERS"]
    assert (entry["run"], entry["spent_by"], entry["removed_messages"]) == (spent, spent, 0)
    undo = warehouse.undo(spent)["run"]
    refused = run("retain", tmp_path, *approved, "--stream", "ORDERS")
    assert refused.returncode == 4
    assert (
        f"ORDERS: the approved report was spent by run {spent}, which run {undo} undid; nothing was removed; plan "
        "again with jobs/plan.py, and have that report approved"
    ) in refused.stderr
    assert warehouse.stream("ORDERS").state().messages == 8


def test_no_more_goes_than_was_approved(warehouse: Warehouse, tmp_path: Path) -> None:
    planned(tmp_path, *PAST)
    warehouse.stream("ORDERS").publish(lines(1, first_ns=LONG_AGO))
    done = run("retain", tmp_path, "--approved", "plan.json", "--stream", "ORDERS")
    assert done.returncode == 4
    assert "9 instead of 8 by max_age" in done.stderr
    # As many messages and bytes, but by another rule, which is not approved.
    configured(tmp_path, {**ASKING, "max_age": 0, "max_msgs": 1}, OTHER)
    done = run("retain", tmp_path, "--approved", "plan.json", "--stream", "ORDERS")
    assert (done.returncode, "8 instead of 0 by max_msgs" in done.stderr) == (4, True)
    assert warehouse.stream("ORDERS").state().messages == 9


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--approved", "none.json"), "there is no such report"),
        (("--approved", "retention.yaml"), "is not a report of plans"),
        (("--approved", "deep.json"), "is not a report of plans"),
        (("--approved", "retained.json"), "has no such plan"),
        (("--approved", "plan.json", "--stream", "NONE"), "NONE: the approved report has no"),
        (("--approved", "plan.json", "--as-of", "now"), "leave out --as-of"),
    ],
)
def test_reports_that_approve_nothing_are_refused(
    warehouse: Warehouse, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    planned(tmp_path, *PAST)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    run("retain", tmp_path, "--stream", "OTHER", *PAST, "--report-file", "retained.json")
    done = run("retain", tmp_path, *arguments)
    assert (done.returncode, reason in done.stderr) == (2, True), done.stderr


def test_a_job_that_fails_as_a_whole_reports_its_sentence(tmp_path: Path) -> None:
    done = run("retain", tmp_path, "--config", "none.yaml", "--report-file", "report.json")
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["error"]["exit_code"] == done.returncode == 2
    assert done.stderr == f"retain: {report['error']['message']}\n"
    nowhere = run("retain", tmp_path, "--config", "none.yaml", "--report-file", "no/report.json")
    assert nowhere.stderr == done.stderr


def test_of_named_streams_only_the_configured_are_compacted(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    configured(tmp_path, ASKING, {**OTHER, "compact": {"min_files": 2}})
    both = ("--configured", "--stream", "ORDERS", "--stream", "OTHER", "--report-file", "r.json")
    assert run("compact", tmp_path, *both).returncode == 0
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert [entry["stream"] for entry in report["streams"]] == ["OTHER"]
    one = run("compact", tmp_path, "--configured", "--stream", "ORDERS")
    assert one.stdout.startswith("compact: 0 streams done, 0 failed")
    assert run("compact", tmp_path, "--configured", "--stream", "NONE").returncode == 2


REFUSED = "plan: apply would refuse this: ORDERS: "


def test_a_plan_says_what_apply_would_refuse(warehouse: Warehouse, tmp_path: Path) -> None:
    configured(tmp_path, {**ASKING, "guards": {"max_removed_share": "50%"}}, OTHER)
    report = ("--report-file", str(tmp_path / "plan.json"))
    only = ("--stream", "ORDERS", *report)
    done = run("plan", tmp_path, *PAST, *only)
    assert done.returncode == 0
    assert done.stderr.startswith(f"{REFUSED}the pass ")
    [entry] = _report(tmp_path / "plan.json")["streams"]
    assert f"plan: apply would refuse this: {entry['refused']}\n" == done.stderr
    refused = run("retain", tmp_path, "--approved", "plan.json", "--stream", "ORDERS")
    assert refused.stderr == f"retain: {entry['refused']}\n"
    lifted = run("plan", tmp_path, *PAST, *only, "--allow-large")
    assert (lifted.stderr, _report(tmp_path / "plan.json")["streams"][0]["refused"]) == ("", None)
    warned = {**ASKING, "guards": {"max_removed_share": {"limit": "50%", "then": "warn"}}}
    configured(tmp_path, warned, OTHER)
    done = run("plan", tmp_path, *PAST, *only)
    assert done.stderr.startswith("plan: ORDERS: guard: the pass ")
    assert done.stderr.endswith(": `apply` reports it and continues\n")


def test_a_plan_of_an_earlier_instant_says_that_apply_would_refuse_it(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    assert run("retain", tmp_path, "--stream", "OTHER").returncode == 0
    only = ("--stream", "OTHER", "--as-of", "now-1d")
    planned = run("plan", tmp_path, *only)
    assert (planned.returncode, "(5 s)" in planned.stderr) == (0, False)
    assert "is earlier than the last applied one" in planned.stderr
    assert run("retain", tmp_path, *only).returncode == 4
    assert run("plan", tmp_path, *only, "--allow-rewind").stderr == ""
    warehouse.stream("OTHER").publish(lines(5, "other.a"))
    why = ("--allow-rewind", "--reason", "a drill")
    assert run("retain", tmp_path, *only, *why).returncode == 0
    newest = warehouse.stream("OTHER").history()[0]["run"]
    assert "refusals were lifted, because: a drill" in warehouse.run(newest).notes()


def test_an_approval_that_a_later_pass_has_overtaken_removes_nothing(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    planned(tmp_path, *PAST, "--stream", "ORDERS")
    configured(tmp_path, ORDERS)
    report = tmp_path / "late.json"
    late = ("--stream", "ORDERS", "--report-file", str(report))
    assert run("retain", tmp_path, *late).returncode == 0
    newer = _report(report)
    run_of_now = newer["streams"][0]["run"]
    warehouse.stream("ORDERS").publish(lines(3, first_ns=LONG_AGO))
    done = run("retain", tmp_path, "--approved", "plan.json", *late)
    assert done.returncode == 0
    assert (
        "retain: ORDERS: superseded: this pass is of 2026-01-01T00:00:00Z, and run " in done.stderr
    )
    assert f"run {run_of_now} has applied a later instant (" in done.stderr
    [entry] = _report(report)["streams"]
    assert entry["superseded_by"] == {"run": run_of_now, "as_of_ns": newer["as_of_ns"]}
    assert warehouse.stream("ORDERS").state().messages == 3
    # Without the option, an earlier instant is refused as usual.
    assert run("retain", tmp_path, *PAST, *late).returncode == 4
    assert run("retain", tmp_path, *PAST, *late, "--skip-superseded").returncode == 0
    assert warehouse.stream("ORDERS").state().messages == 3


def test_a_pass_of_another_configuration_leaves_an_approved_plan_valid(
    tmp_path: Path,
) -> None:
    orders = open_warehouse(configured(tmp_path, ASKING)).stream("ORDERS")
    orders.publish(lines(8, first_ns=LONG_AGO))
    planned(tmp_path, *PAST)
    content = json.loads((tmp_path / "retention.yaml").read_text(encoding="utf-8"))
    theirs = {**content, "streams": [{"name": "THEIRS", "subjects": ["theirs.>"]}]}
    (tmp_path / "theirs.yaml").write_text(json.dumps(theirs), encoding="utf-8")
    done = run("retain", tmp_path, "--config", "theirs.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    done = run("retain", tmp_path, "--approved", "plan.json")
    assert (done.returncode, done.stderr) == (0, "")
    assert orders.state().messages == 0


def test_another_try_of_a_task_finds_what_the_first_has_committed(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(tmp_path, ORDERS)
    names = {"DAG_ID": "nightly", "TASK_ID": "ORDERS.apply", "DAG_RUN_ID": "one", "TRY_NUMBER": "1"}
    report = tmp_path / "retained.json"

    def entry(**changed: str) -> dict[str, Any]:
        for name, value in (names | changed).items():
            monkeypatch.setenv(f"AIRFLOW_CTX_{name}", value)
        only = ("--stream", "ORDERS", "--report-file", str(report))
        done = run("retain", tmp_path, *PAST, *only)
        assert done.returncode == 0, done.stderr
        [found] = _report(report)["streams"]
        return dict(found)

    first = entry()
    assert (first["removed_messages"], "earlier_try" in first) == (8, False)
    second = entry(TRY_NUMBER="2")
    assert second["removed_messages"] == 0
    assert second["earlier_try"] == {
        name: first[name]
        for name in ("run", "removed_messages", "removed_bytes", "by_rule", "markers")
    }
    assert "earlier_try" not in entry(DAG_RUN_ID="two")
    warehouse.undo(first["run"])
    third = entry(TRY_NUMBER="3")
    assert (third["removed_messages"], "earlier_try" in third) == (8, False)
