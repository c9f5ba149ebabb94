"""An object store behind a proxy that drops conditions: writes are refused, and reads continue."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.storage import files
from retention.stores.checks.capability_probe import commits_exclude, trial_place
from tests.support.command_line import invoke
from tests.support.front import Front, Kind, front_of

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 2, "no_ack": True}
LINES = "\n".join(json.dumps({"subject": "orders.a", "data": str(n)}) for n in range(5))
READS = (["state"], ["plan"], ["messages", "ORDERS"], ["explain", "ORDERS", "1"], ["history"])
WRITES = (
    ["publish", "ORDERS", "-"],
    ["publish", "NEW", "-"],
    ["apply", "ORDERS", "--yes"],
    ["consumer", "add", "ORDERS", "billing"],
)


@pytest.fixture
def door(server: dict[str, str], bucket: str) -> Iterator[tuple[Front, str]]:
    """A new address, not yet probed by this process."""
    with front_of(server["AWS_ENDPOINT_URL"]) as opened:
        yield opened


@pytest.fixture
def retention(bucket: str) -> Callable[..., Any]:
    """A function that runs a command on a warehouse with messages written without the proxy."""
    config = {"streams": [ORDERS, {"name": "NEW", "subjects": ["new.>"]}]}
    files.replace(f"{bucket}/retention.yaml", json.dumps(config).encode())
    open_warehouse(bucket).new_stream("ORDERS").publish(LINES.splitlines())
    line = '{"subject": "new.a", "data": "x"}'
    return lambda *words: invoke(["--warehouse", bucket, "--engine", "local", *words], stdin=line)


def test_where_conditions_are_dropped_every_write_is_refused_and_reading_goes_on(
    door: tuple[Front, str],
    bucket: str,
    retention: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front, address = door
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    front.unconditional = True
    for words in READS:
        assert retention(*words).exit_code == 0, words
    before = files.walk(bucket)
    for words in WRITES:
        done = retention(*words)
        assert (done.exit_code, "lets both through" in done.stderr) == (4, True), done.output
        assert files.walk(bucket) == before, words
    found = retention("--format", "json", "doctor")
    assert found.exit_code == 4, found.output
    problems = [one["check"] for one in json.loads(found.stdout) if one["result"] == "problem"]
    assert problems == ["commits"]
    front.unconditional = False
    for is_tried in (True, False):
        front.begin()
        assert retention("publish", "NEW", "-").exit_code == 0
        assert any(call.place == "trial" for call in front.calls) == is_tried


def test_what_a_trial_of_a_store_finds_does_not_depend_on_who_comes_first(
    door: tuple[Front, str], bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, address = door
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    # Answers have random delays.
    answer, dice = Front.next, random.Random(5)

    def late(self: Front, operation: str, place: str) -> Kind | None:
        time.sleep(dice.expovariate(100))
        return answer(self, operation, place)

    monkeypatch.setattr(Front, "next", late)
    found = []
    for turn in range(12):
        front.unconditional = turn % 2 == 1
        with trial_place(bucket) as place:
            found.append(commits_exclude(place))
    assert found == [True, False] * 6
    assert files.walk(bucket) == []
