from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.stores.lease import lease
from tests.support.sandboxes import NOW, ORDERS, Commands, commands, lines

AS_OF = "2027-01-15T08:00:00Z"
KEYS = {
    *("stream", "plan_id", "removed_messages", "removed_bytes", "by_rule", "segments", "markers"),
    *(
        "deleted_consumers",
        "files_read",
        "bytes_read",
        "bytes_written",
        "seconds",
        "version_before",
        "version_after",
    ),
}
FORETOLD = {"next_due_ns", "due"}
PLANNED = KEYS | FORETOLD | {"groups"}
OTHER = {"name": "OTHER", "subjects": ["other.>"], "max_msgs": 3}


@pytest.fixture(params=["delta", "parquet"])
def orders(tmp_path: Path, request: pytest.FixtureRequest) -> Commands:
    """ORDERS with a message per hour for ten days, OTHER empty; `NOW` is in the future of the real clock."""
    command = commands(tmp_path, ORDERS, OTHER, format=request.param)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(240)))
    return command


def planned(command: Commands, *arguments: object) -> dict[str, Any]:
    document: dict[str, Any] = command.json("plan", *arguments)
    return document


def held(command: Commands) -> list[dict[str, Any]]:
    """The content of streams, without due amounts, which depend on the clock."""
    states: list[dict[str, Any]] = command.json("state")
    return [{key: one[key] for key in one.keys() - FORETOLD} for one in states]


def test_a_plan_has_the_contracts_keys_and_changes_nothing(orders: Commands) -> None:
    before = held(orders)
    document = planned(orders, "--as-of", AS_OF)
    assert document["format_version"] == 1
    assert document["as_of_ns"] == NOW
    first, second = document["streams"]
    assert first.keys() == second.keys() == PLANNED
    assert (first["stream"], first["removed_messages"]) == ("ORDERS", 73)
    assert first["by_rule"] == {"max_age": 73}
    assert first["segments"] == {"dropped": 3, "rewritten": 1, "kept": 6}
    assert (second["stream"], second["removed_messages"]) == ("OTHER", 0)
    assert held(orders) == before


def test_a_plan_for_people_says_why(orders: Commands) -> None:
    done = orders.run("plan", "--as-of", AS_OF, "ORDERS")
    assert (
        "  segments 1 … 49 (3): remove 72 messages: max_age 7d, youngest is 7d 1h old"
        in done.stdout
    )
    assert "ORDERS: planned, would remove 73 messages" in done.stderr


def test_an_exit_code_tells_whether_something_would_change(orders: Commands) -> None:
    assert orders.run("plan", "--as-of", AS_OF, "--exit-code").exit_code == 3
    assert orders.run("plan", "--as-of", AS_OF, "--exit-code", "OTHER").exit_code == 0
    assert orders.run("plan", "--as-of", AS_OF).exit_code == 0


def test_a_plan_says_what_apply_would_refuse(orders: Commands) -> None:
    assert "--allow-future" in orders.run("plan", "--as-of", AS_OF).stderr
    orders.run("apply", "--yes", "--as-of", AS_OF, "--allow-future")
    assert "--allow-rewind" in orders.run("plan", "--as-of", NOW - 1).stderr


def test_an_estimate_bounds_the_plan(orders: Commands) -> None:
    (bounds, _) = planned(orders, "--estimate", "--as-of", AS_OF)["streams"]
    assert bounds["removed_messages"]["lower"] <= 73 <= bounds["removed_messages"]["upper"]
    assert (
        "would remove 72 to 95 messages"
        in orders.run("plan", "--estimate", "--as-of", AS_OF).stdout
    )
    refused = orders.run("plan", "--estimate", "-o", "x")
    assert refused.exit_code == 2


def test_apply_removes_what_was_planned(orders: Commands) -> None:
    (plan, _) = planned(orders, "--as-of", AS_OF)["streams"]
    document = orders.json("apply", "--yes", "--as-of", AS_OF, "--allow-future")
    report, nothing = document["streams"]
    assert report.keys() >= KEYS
    assert {key: report[key] for key in ("plan_id", "removed_messages", "by_rule", "segments")} == {
        key: plan[key] for key in ("plan_id", "removed_messages", "by_rule", "segments")
    }
    assert nothing["removed_messages"] == nothing["bytes_written"] == 0
    (state, _) = orders.json("state")
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (167, 74, 240)


def test_a_saved_plan_is_applied_once(orders: Commands, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    plan = planned(orders, "--as-of", AS_OF, "-o", file)["streams"][0]
    document = orders.json("apply", file, "--yes", "--allow-future")
    assert document["as_of_ns"] == NOW
    assert document["streams"][0]["plan_id"] == plan["plan_id"]
    assert orders.run("apply", file, "--yes", "--allow-future", "ORDERS").exit_code == 2
    assert orders.run("apply", file, "--yes", "--as-of", AS_OF).exit_code == 2
    again = orders.run("apply", file, "--yes", "--allow-future", "--format", "json")
    entries = {entry["stream"]: entry for entry in json.loads(again.stdout)["streams"]}
    assert again.exit_code == 75
    assert entries["ORDERS"]["error"]["exit_code"] == 75
    assert "error" not in entries["OTHER"]


def test_a_name_that_is_neither_stream_nor_file_is_a_usage_error(orders: Commands) -> None:
    done = orders.run("apply", "ORDRES", "--yes")
    assert done.exit_code == 2
    assert "no such stream and no such plan file" in done.stderr


def test_without_yes_nobody_to_ask_is_a_usage_error(orders: Commands) -> None:
    before = held(orders)
    done = orders.run("apply", "--as-of", AS_OF, "--allow-future")
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert held(orders) == before


@pytest.mark.parametrize(("answer", "left"), [("y\n", 167), ("n\n", 240)])
def test_on_a_terminal_it_asks_and_does_what_it_showed(
    orders: Commands, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    monkeypatch.setattr("retention.cli.applying.can_ask", lambda: True)
    done = orders.run("apply", "--as-of", AS_OF, "--allow-future", stdin=answer)
    assert done.exit_code == 0
    assert "youngest is 7d 1h old" in done.stderr
    assert orders.json("state")[0]["messages"] == left


def test_an_instant_in_the_future_is_refused_unless_meant(orders: Commands) -> None:
    done = orders.run("apply", "ORDERS", "--yes", "--as-of", AS_OF)
    assert done.exit_code == 4
    assert "later than the clock" in done.stderr
    assert orders.json("state")[0]["messages"] == 240
    assert orders.run("apply", "--yes", "--as-of", AS_OF, "--allow-future").exit_code == 0


def test_an_instant_before_the_last_one_is_refused_unless_meant(orders: Commands) -> None:
    orders.run("apply", "--yes", "--as-of", NOW, "--allow-future")
    done = orders.run("apply", "ORDERS", "--yes", "--as-of", NOW - 1, "--allow-future")
    assert done.exit_code == 4
    assert "earlier than the last applied one" in done.stderr
    lifted = ("--allow-future", "--allow-rewind")
    assert orders.run("apply", "ORDERS", "--yes", "--as-of", NOW - 1, *lifted).exit_code == 0


def test_an_instant_that_cannot_be_read_is_a_usage_error(orders: Commands) -> None:
    for command in ("plan", "apply"):
        done = orders.run(
            command, "--as-of", "last week", *(["--yes"] if command == "apply" else [])
        )
        assert done.exit_code == 2
        assert "'last week' is not an instant" in done.stderr


def test_two_applies_at_once_are_one_too_many(orders: Commands) -> None:
    root = str(orders.folder / "streams" / "ORDERS")
    with lease(root, "maintenance", lambda: NOW):
        done = orders.run("apply", "ORDERS", "--yes")
    assert done.exit_code == 75
    assert orders.run("apply", "ORDERS", "--yes").exit_code == 0


def test_an_unknown_stream_has_its_entry_and_stops_no_other(orders: Commands) -> None:
    done = orders.run("plan", "ORDRES", "ORDERS", "--format", "json", "--as-of", AS_OF)
    assert done.exit_code == 5
    missing, found = json.loads(done.stdout)["streams"]
    assert missing.keys() == PLANNED | {"error"}
    assert missing["error"]["exit_code"] == 2
    assert "did you mean ORDERS?" in missing["error"]["message"]
    assert found["removed_messages"] == 73
    assert orders.run("plan", "ORDRES").exit_code == 2


def test_undo_brings_messages_back(orders: Commands) -> None:
    run = orders.json("apply", "ORDERS", "--yes", "--as-of", AS_OF, "--allow-future")["streams"][0][
        "run"
    ]
    record = orders.json("undo", run)
    assert record["restored_messages"] == 73
    assert orders.json("state")[0]["messages"] == 240
    assert orders.run("undo", "nonsense").exit_code == 2


def test_undo_says_that_the_next_pass_removes_them_again_and_what_stops_it(
    orders: Commands,
) -> None:
    passed = ("apply", "ORDERS", "--yes", "--as-of", AS_OF, "--allow-future")
    run = orders.json(*passed)["streams"][0]["run"]
    said = (
        "  the next pass removes them again, by max_age (7d); to keep them, first raise max_age in the configuration, "
        "or set `guards: {max_removed_share: 0%}`, which refuses the pass\n"
    )
    dry = orders.run("undo", run, "--dry-run")
    assert dry.stdout.endswith(said), dry.output
    assert orders.json("undo", run, "--dry-run")["removed_again"]["rules"] == ["max_age"]
    done = orders.run("undo", run)
    assert done.stdout.endswith(said), done.output
    undo = orders.json("history", "ORDERS")[0]["run"]
    assert said in orders.run("history", "show", undo).stdout
    assert orders.json("history", "show", undo)["removed_again"]["sentence"] == said.strip()
    defaults = json.loads((orders.folder / "retention.yaml").read_text())["defaults"]
    guarded = {**ORDERS, "guards": {"max_removed_share": "0%"}}
    assert commands(orders.folder, guarded, OTHER, **defaults).run(*passed).exit_code == 4
    raised = commands(orders.folder, {**ORDERS, "max_age": "12d"}, OTHER, **defaults)
    assert raised.json(*passed)["streams"][0]["removed_messages"] == 0
    assert raised.json("history", "show", undo)["removed_again"] is None


def test_a_guard_refuses_warns_or_is_lifted(tmp_path: Path) -> None:
    guards = {"max_removed_share": "10%", "min_kept_messages": {"limit": 239, "then": "warn"}}
    command = commands(tmp_path, ORDERS, OTHER, guards=guards)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(240)))
    as_of = ("--as-of", AS_OF, "--allow-future")
    before = held(command)
    plan = command.run("plan", "ORDERS", "--as-of", AS_OF)
    assert plan.exit_code == 0
    assert "73 of 240 messages (30.5%), more than max_removed_share 10%" in plan.stdout
    refused = command.run("apply", "--yes", "ORDERS", *as_of)
    assert refused.exit_code == 4
    assert "nothing was changed" in refused.stderr
    assert "--allow-large" in refused.stderr
    assert command.run("apply", "--yes", *as_of).exit_code == 5
    assert held(command) == before
    done = command.run("apply", "--yes", "--allow-large", "ORDERS", *as_of)
    assert done.exit_code == 0
    warning = "keeps 167 of 240 messages, fewer than min_kept_messages 239 (only a warning)"
    assert warning in done.stdout
    assert f"ORDERS: guard: the pass {warning}" in done.stderr
    assert "(lifted by --allow-large)" in done.stderr
