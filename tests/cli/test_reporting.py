"""`report`, and `--report-html` of jobs: a page and Markdown about streams and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from retention.api.warehouse import Warehouse
from tests.support.jobs import run_job
from tests.support.sandboxes import NOW, ORDERS, Commands, commands, lines, opened

AS_OF = "2027-01-15T08:00:00Z"


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    """ORDERS with a pass and an undo, OTHER with one message, EMPTY without any."""
    hold = {"consumers": ["slow"], "max_age": "90d"}
    made = opened(
        tmp_path,
        {**ORDERS, "hold_for_consumers": hold, "max_msgs": 200},
        {"name": "OTHER", "subjects": ["other.>"]},
        {"name": "EMPTY", "subjects": ["empty.>"]},
    )
    orders = made.stream("ORDERS")
    orders.publish(lines(240))
    orders.consumers.add({"name": "slow", "filter_subject": "orders.none"})
    made.undo(orders.plan().apply(allow_large=True).run)
    orders.consumers.remove("slow")
    orders.consumers.add({"name": "slow", "filter_subject": "orders.>"})
    made.stream("OTHER").publish(lines(1, "other.a"))
    return made


def test_a_page_has_the_parts_of_each_stream(warehouse: Warehouse, tmp_path: Path) -> None:
    command = Commands(tmp_path)
    page, markdown = tmp_path / "report.html", tmp_path / "report.md"
    done = command.run("report", "--html", page, "--markdown", markdown, "--as-of", AS_OF)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 7
    for part in (
        "Last pass",
        "was undone by",
        "Consumers",
        "held back",
        "Largest subjects",
        "Runs",
    ):
        assert part in text
    written = markdown.read_text(encoding="utf-8")
    assert "| `ORDERS` | 240 messages | " in written
    assert "| `OTHER` | 1 message | " in written
    assert command.run("report", "--html", page, "OTHER").exit_code == 0
    assert "ORDERS" not in page.read_text(encoding="utf-8")
    printed = command.run("report", "OTHER").stdout
    assert printed.startswith("## Retention of OTHER\n")
    assert sorted(each.name for each in tmp_path.glob("*.tmp")) == []


def test_runs_record_the_messages_and_bytes_that_they_leave(warehouse: Warehouse) -> None:
    undo, applied = warehouse.runs(["ORDERS"])
    state = warehouse.stream("ORDERS").state(NOW)
    assert (undo.kept_messages, undo.kept_bytes) == (240, state.bytes)
    assert applied.kept_messages == 240 - applied.removed_messages
    assert applied.kept_bytes == state.bytes - applied.removed_bytes


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("NONE",), 2, "there is no such stream"),
        (("ORDERS", "NONE"), 5, "there is no such stream"),
        (("--html", "retention.yaml"), 2, "holds something other than a report page"),
        (("--html", "a", "--markdown", "a"), 2, "name two files"),
        (("--format", "json"), 2, "leave out --format"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    sentence: str,
) -> None:
    command = commands(tmp_path, ORDERS)
    monkeypatch.chdir(tmp_path)
    done = command.run("report", *arguments)
    assert done.exit_code == code, done.output
    assert sentence in done.stderr


def test_a_job_writes_a_page_about_its_streams_failed_ones_first(tmp_path: Path) -> None:
    orders = {**ORDERS, "guards": {"max_removed_share": "50%"}}
    made = opened(tmp_path, {**ORDERS, "name": "OLD", "subjects": ["old"]}, orders)
    for name, subject in (("OLD", "old"), ("ORDERS", "orders.a")):
        made.stream(name).publish(lines(9, subject, 1_600_000_000 * 10**9))
    job = ("retain", tmp_path, "--engine", "local", "--as-of", "2026-01-01T00:00:00Z")
    done = run_job(*job, "--report-html", "page.html")
    assert done.returncode == 5, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "max_removed_share" in page
    assert page.index('">ORDERS</a>') < page.index('">OLD</a>')
    assert "retain: 1 stream done, 1 failed" in page
    (tmp_path / "other.html").write_text("mine")
    refused = run_job("retain", tmp_path, "--report-html", "other.html")
    assert (refused.returncode, (tmp_path / "other.html").read_text()) == (2, "mine")
