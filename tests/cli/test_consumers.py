from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from retention.consumers.state import from_json
from retention.stores.consumers import ConsumerRecord, ConsumerTable
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
    assert "is deleted" in orders.run("consumer", "rm", "ORDERS", "billing", "--yes").stdout


def test_what_a_server_prints_is_taken(orders: Commands, tmp_path: Path) -> None:
    said = {"stream_name": "ORDERS", "config": {"durable_name": "x", "ack_policy": "all"}}
    file = tmp_path / "consumer.json"
    file.write_text(json.dumps(said))
    added = orders.json("consumer", "add", "ORDERS", "audit", "--from", file)
    assert (added["name"], added["config"]["ack_policy"]) == ("audit", "all")


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
