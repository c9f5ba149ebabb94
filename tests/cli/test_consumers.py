from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retention.consumers.state import from_json
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.support.sandboxes import ORDERS, Commands, commands, lines

QUEUE = ORDERS | {"retention": "workqueue", "max_age": "0"}


@pytest.fixture
def orders(tmp_path: Path) -> Commands:
    """Five messages on orders.new, then three on orders.paid."""
    command = commands(tmp_path, ORDERS | {"retention": "interest", "max_age": "0"})
    for count, subject in ((5, "orders.new"), (3, "orders.paid")):
        command.json("publish", "ORDERS", stdin="\n".join(lines(count, subject)))
    return command


def settle(command: Commands, name: str, seq: int) -> None:
    """A consumer acknowledges everything up to a sequence."""
    table = ConsumerTable(str(command.folder / "streams/ORDERS"))
    place = {"consumer_seq": seq, "stream_seq": seq}
    state = from_json({"delivered": place, "ack_floor": place})

    def change(found: ConsumerRecord | None) -> ConsumerRecord:
        assert found is not None
        return replace(found, state=state)

    table.update(name, change)


def listed(command: Commands) -> dict[str, Any]:
    return {one["name"]: one for one in command.json("consumer", "ls", "ORDERS")}


def test_a_consumer_is_added_listed_edited_and_deleted(orders: Commands) -> None:
    assert listed(orders) == {}
    added = orders.json("consumer", "add", "ORDERS", "billing", "--filter", "orders.paid")
    assert (added["num_pending"], added["revision"]) == (3, 1)
    assert added["config"]["ack_policy"] == "explicit"
    assert orders.json("consumer", "add", "ORDERS", "billing", "--filter", "orders.paid") == added
    assert orders.json("consumer", "info", "ORDERS", "billing") == added
    edited = orders.json(
        "consumer",
        "update",
        "ORDERS",
        "billing",
        "--filter",
        "orders.paid",
        "--filter",
        "orders.new",
    )
    assert edited["config"]["filter_subjects"] == ["orders.paid", "orders.new"]
    assert (edited["revision"], edited["num_pending"]) == (2, 8)
    assert list(listed(orders)) == ["billing"]
    gone = orders.json("consumer", "rm", "ORDERS", "billing", "--yes")
    assert gone == {"stream": "ORDERS", "name": "billing", "deleted": True}
    assert listed(orders) == {}


def test_a_consumer_is_deleted_without_a_look_at_the_messages(orders: Commands) -> None:
    orders.json("consumer", "add", "ORDERS", "billing", "--filter", "orders.paid")
    root = orders.folder / "streams/ORDERS"
    for file in [*root.rglob("messages/**/*.parquet"), *root.rglob("subjects/**/*.parquet")]:
        file.unlink()
    assert orders.run("consumer", "info", "ORDERS", "billing").exit_code != 0
    orders.json("consumer", "rm", "ORDERS", "billing", "--yes")
    assert listed(orders) == {}


def test_a_subject_finds_its_stream_and_makes_a_consumer_once(orders: Commands) -> None:
    made = orders.json("consumer", "subscribe", "orders.paid", "--name", "billing")
    assert (made["stream"], made["name"], made["num_pending"]) == ("ORDERS", "billing", 3)
    assert orders.json("consumer", "subscribe", "orders.paid", "--name", "billing") == made
    for_a_while = orders.json("consumer", "subscribe", "orders.new")
    assert for_a_while["config"]["filter_subject"] == "orders.new"
    assert "durable_name" not in for_a_while["config"]
    refused = orders.run("consumer", "subscribe", "orders.new", "--name", "billing")
    assert (refused.exit_code, "write orders.paid" in refused.output) == (4, True)
    lost = orders.run("consumer", "subscribe", "refunds")
    assert (lost.exit_code, "no stream has 'refunds'" in lost.output) == (2, True)


def test_what_is_settled_goes_and_what_is_to_come_is_counted(orders: Commands) -> None:
    orders.json("consumer", "add", "ORDERS", "all")
    settle(orders, "all", 6)
    assert listed(orders)["all"]["num_pending"] == 2
    [report] = orders.json("apply", "--yes")["streams"]
    assert report["by_rule"] == {"interest": 6}
    assert listed(orders)["all"]["num_pending"] == 2


def test_a_state_tells_of_consumers_if_it_is_asked(orders: Commands) -> None:
    orders.json("consumer", "add", "ORDERS", "all")
    [plain] = orders.json("state", "ORDERS")
    assert "consumers" not in plain
    [told] = orders.json("state", "ORDERS", "--consumers")
    assert told == plain | {"consumers": list(listed(orders).values())}
    shown = orders.run("state", "--consumers").stdout
    assert "ORDERS  all       >" in shown


def test_tables_are_for_people(orders: Commands) -> None:
    orders.json(
        "consumer", "add", "ORDERS", "billing", "--filter", "orders.paid", "--deliver", "new"
    )
    shown = orders.run("consumer", "ls", "ORDERS").stdout.splitlines()
    assert shown[0].split() == [
        "CONSUMER", "WANTS", "ACKS", "DELIVERED", "FLOOR", "PENDING", "REDELIVERED", "TO", "COME",
    ]  # fmt: skip
    assert shown[1].split() == ["billing", "orders.paid", "explicit", "8", "8", "0", "0", "0"]
    assert "  floor: 8" in orders.run("consumer", "info", "ORDERS", "billing").stdout
    assert "was deleted" in orders.run("consumer", "rm", "ORDERS", "billing", "--yes").stdout


def test_what_a_server_prints_is_taken(orders: Commands, tmp_path: Path) -> None:
    config = {"durable_name": "x", "name": "x", "ack_policy": "all"}
    said = {"stream_name": "ORDERS", "config": config}
    file = tmp_path / "consumer.json"
    file.write_text(json.dumps(said))
    added = orders.json("consumer", "add", "ORDERS", "audit", "--from", file)
    assert (added["name"], added["config"]["ack_policy"]) == ("audit", "all")
    file.write_text(json.dumps({"config": config | {"description": "of the auditors"}}))
    edited = orders.json("consumer", "update", "ORDERS", "audit", "--from", file)
    assert (edited["name"], edited["config"]["description"]) == ("audit", "of the auditors")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("info", "ORDERS", "none"), 2, "there is no consumer none"),
        (("rm", "ORDERS", "none", "--yes"), 2, "there is no consumer none"),
        (("update", "ORDERS", "none"), 2, "there is no consumer none"),
        (("rm", "ORDERS", "billing"), 2, "--yes"),
        (("add", "ORDERS", "billing", "--ack", "all"), 4, "10148"),
        (("add", "ORDERS", "x", "--ack", "maybe"), 2, "ack_policy"),
        (("add", "ORDERS", "x", "--filter", "orders..a"), 4, "filter_subject"),
        (("add", "ORDERS", "x", "--from", "nowhere.json"), 2, "nowhere.json"),
    ],
)
def test_mistakes_change_nothing(
    orders: Commands, words: tuple[str, ...], code: int, text: str
) -> None:
    orders.json("consumer", "add", "ORDERS", "billing")
    before = listed(orders)
    done = orders.run("consumer", *words)
    assert done.exit_code == code, done.output
    assert text in done.output
    assert listed(orders) == before


def test_a_work_queue_takes_one_consumer_for_a_subject(tmp_path: Path) -> None:
    command = commands(tmp_path, QUEUE)
    command.json("consumer", "add", "ORDERS", "one")
    done = command.run("consumer", "add", "ORDERS", "two")
    assert done.exit_code == 4
    assert "10099" in done.output


def log_in(folder: Path, *lines: str) -> Path:
    log = folder / "acks.jsonl"
    log.write_text("".join(f'{{"subject": "$JS.ACK.{line}", "data": "+ACK"}}\n' for line in lines))
    return log


def test_acks_are_folded_and_what_they_settle_goes(orders: Commands) -> None:
    orders.json("consumer", "add", "ORDERS", "all")
    said = [
        "ORDERS.all.1.1.1.1790000000000000000.0",
        "ORDERS.all.1.2.2.1790000000000000000.0",
        "ORDERS.all.1.5.4.1790000000000000000.0",
    ]
    log = log_in(
        orders.folder,
        *said,
        "OTHER.all.1.1.1.1790000000000000000.0",
        "ORDERS.gone.1.1.1.1790000000000000000.0",
        "ORDERS.x",
    )
    [done] = orders.json("consumer", "fold", "ORDERS", log)
    assert done == {
        "stream": "ORDERS",
        "log": str(log),
        "rows": 6,
        "before": 0,
        "consumers": {
            "all": {
                "lines": 3,
                "settling": 3,
                "naks": 0,
                "unknown_bodies": 0,
                "beyond": 0,
                "undelivered": 0,
                "missing": 1,
                "missing_ranges": [[3, 3]],
            }
        },
        "malformed": [
            {
                "why": "has 4 tokens; a reply has 9, or 11 and more with domain and account",
                "count": 1,
                "example": "$JS.ACK.ORDERS.x",
            }
        ],
        "unknown_consumers": {"gone": 1},
        "other_streams": {"OTHER": 1},
    }
    [report] = orders.json("apply", "--yes")["streams"]
    assert report["by_rule"] == {"interest": 3}
    [again] = orders.json("consumer", "fold", "ORDERS", log, "--name", "acks")
    assert (again["log"], again["before"]) == ("acks", 0)


def test_a_consumer_keeps_what_an_undo_brought_back_as_it_says(orders: Commands) -> None:
    orders.json("consumer", "add", "ORDERS", "all")
    said = [f"ORDERS.all.1.{n}.{n}.1790000000000000000.0" for n in (1, 2, 3)]
    orders.json("consumer", "fold", "ORDERS", log_in(orders.folder, *said))
    [report] = orders.json("apply", "--yes")["streams"]
    assert report["by_rule"] == {"interest": 3}
    undone = orders.run("undo", report["run"])
    assert undone.stdout.endswith(
        "  the next pass removes them again, by interest; to keep them, first add a consumer that needs them\n"
    )
    [again] = orders.json("plan", "ORDERS")["streams"]
    assert again["by_rule"] == {"interest": 3}
    orders.json("consumer", "add", "ORDERS", "keeper")
    [kept] = orders.json("apply", "--yes")["streams"]
    assert kept["removed_messages"] == 0


def test_what_a_log_came_to_is_said_in_words(orders: Commands) -> None:
    orders.json("consumer", "add", "ORDERS", "all")
    said = ["ORDERS.all.1.1.1.1790000000000000000.0", "ORDERS.all.1.5.4.1790000000000000000.0"]
    log = log_in(
        orders.folder,
        *said,
        "OTHER.all.1.1.1.1790000000000000000.0",
        "ORDERS.gone.1.1.1.1790000000000000000.0",
        "ORDERS.x",
    )
    assert orders.run("consumer", "fold", "ORDERS", log).stdout.splitlines() == [
        f"ORDERS: 5 lines of {log} folded, 0 before",
        "  all: 2 lines: 2 settle",
        "    no line reports 2 deliveries: 2-3",
        "  1 malformed line: a reply has 4 tokens; a reply has 9, or 11 and more with domain and account, such as "
        "'$JS.ACK.ORDERS.x'",
        "  1 line of unknown consumers: gone",
        "  1 line of other streams: OTHER",
    ]


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        (
            "ORDERS.all.1.9.1.1790000000000000000.0",
            4,
            "about message 9, of consumer all, and the last one here is 8",
        ),
        (None, 2, "nowhere cannot be read as a log of acks"),
    ],
)
def test_a_log_that_does_not_fit_changes_nothing(
    orders: Commands, line: str | None, code: int, text: str
) -> None:
    orders.json("consumer", "add", "ORDERS", "all")
    before = listed(orders)
    log = (
        "nowhere"
        if line is None
        else log_in(orders.folder, "ORDERS.all.1.1.1.1790000000000000000.0", line)
    )
    done = orders.run("consumer", "fold", "ORDERS", log)
    assert done.exit_code == code
    assert text in done.output
    assert listed(orders) == before
