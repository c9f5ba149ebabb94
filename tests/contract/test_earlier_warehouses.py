"""Data of earlier versions remains readable: warehouses in tests/fixtures, and the output of these versions on them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.core.units import DAY
from retention.stores import storage_clock
from tests.support.sandboxes import Commands

FIXTURES = Path(__file__).parents[1] / "fixtures"
EXPECTED: dict[str, Any] = json.loads(
    (FIXTURES / "warehouse-2026-11.json").read_text(encoding="utf-8")
)
REFUSED = "EVENTS"
"""A stream with row tombstones."""
STREAMS = sorted(EXPECTED.keys() - {REFUSED})
APPLIED = {"ORDERS": 18, "SESSIONS": 4}
"""The removals of the newest run of each."""


@pytest.fixture
def earlier(tmp_path: Path) -> Commands:
    with tarfile.open(FIXTURES / "warehouse-2026-11.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    config = tmp_path / "w" / "retention.yaml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace("    release_share: 90%\n", ""), encoding="utf-8")
    return Commands(tmp_path / "w")


def test_a_stream_with_row_tombstones_is_refused(earlier: Commands) -> None:
    refused = earlier.run("messages", REFUSED)
    assert refused.exit_code == 4
    assert f"stream {REFUSED}: an earlier build released messages in 1 file of it" in refused.output


def test_everything_is_there(earlier: Commands) -> None:
    for state in earlier.json("state", *STREAMS):
        expected = EXPECTED[state["stream"]]["state"]
        assert {name: state[name] for name in expected} == expected
    for stream in STREAMS:
        messages = earlier.json("messages", stream)
        expected = EXPECTED[stream]["messages"]
        assert [{name: message[name] for name in expected[0]} for message in messages] == expected
        runs = earlier.json("history", stream)
        assert [run["run"] for run in runs] == [run["run"] for run in EXPECTED[stream]["runs"]]


@pytest.mark.parametrize("stream", sorted(APPLIED))
def test_its_runs_can_be_undone_and_done_again(earlier: Commands, stream: str) -> None:
    [newest, *_] = EXPECTED[stream]["runs"]
    undone = earlier.run("undo", newest["run"])
    assert undone.exit_code == 0, undone.output
    [state] = earlier.json("state", stream)
    assert state["messages"] == EXPECTED[stream]["state"]["messages"] + APPLIED[stream] - (
        4 if stream == "SESSIONS" else 0
    )
    earlier.json("apply", stream, "--yes", "--as-of", "2025-03-20T00:00:00Z")
    [state] = earlier.json("state", stream)
    assert state["messages"] == EXPECTED[stream]["state"]["messages"]


@pytest.mark.parametrize("stream", ["ORDERS", "PLAIN"])
def test_its_archives_bring_back_what_its_runs_removed(earlier: Commands, stream: str) -> None:
    before = earlier.json("messages", stream)
    restored = earlier.json("restore", stream)
    assert restored["messages"]
    assert restored["left_out"] == []
    after = earlier.json("messages", stream)
    assert len(after) == len(before) + restored["messages"]
    seqs = [message["seq"] for message in after]
    assert seqs == sorted(set(seqs))


def test_sequences_and_batches_go_on(earlier: Commands) -> None:
    for stream, subject, writer, batch in (
        ("ORDERS", "orders.dan", "w", 1),
        ("PLAIN", "plain.dan", "w", 8),
    ):
        line = json.dumps({"subject": subject, "data": "new"})
        [again] = earlier.json("publish", stream, "--writer", writer, "--batch", batch, stdin=line)
        assert again["duplicate"] is True
        done = earlier.run("--format", "jsonl", "publish", stream, stdin=line)
        assert json.loads(done.stdout)["seq"] == EXPECTED[stream]["state"]["last_seq"] + 1


def test_saved_plans_are_carried_out_or_ask_to_plan_again(earlier: Commands) -> None:
    for plan in ("orders.plan.json", "sessions.plan.json"):
        done = earlier.run("apply", earlier.folder / plan, "--yes")
        assert done.exit_code in {0, 75}, done.output
        if done.exit_code:
            assert "plan again" in done.output


def test_its_runs_are_told_after_reclaim_as_before(
    earlier: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(name: str) -> list[dict[str, Any]]:
        clock = open_warehouse(earlier.folder / "retention.yaml").clock
        monkeypatch.setattr(storage_clock, "storage_now", lambda _: clock() + 40 * DAY)
        warehouse = open_warehouse(
            earlier.folder / "retention.yaml", engine="local", clock=lambda: clock() + 40 * DAY
        )
        if name == "reclaimed":
            errors = {outcome.stream: outcome.error for outcome in warehouse.reclaim().apply()}
            assert "an earlier build released messages" in str(errors.pop(REFUSED))
            assert errors == dict.fromkeys(STREAMS)
        table = warehouse.history_export().drop_columns(
            ["began", "as_of", "undone", "reclaimed", "reclaimed_by"]
        )
        return [row for row in table.to_pylist() if row["kind"] != "reclaim"]

    before = told("before")
    assert {row["evidence"] for row in before} == {"files", "none", "deleted"}
    assert told("reclaimed") == before
    explained = earlier.run("explain", "ORDERS", "1")
    assert "may have been removed by run " in explained.stdout


def test_consumers_and_offsets_are_where_they_were(earlier: Commands) -> None:
    [worker] = earlier.json("consumer", "ls", "JOBS")
    assert (worker["name"], worker["ack_floor"]["stream_seq"]) == ("worker", 3)
    [offset] = earlier.json("offset", "ls", "clicks")
    assert (offset["partition"], offset["offset"]) == (0, 2)
