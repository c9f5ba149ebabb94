from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.sandboxes import NOW, ORDERS, Commands, commands, lines

COPY = {"name": "COPY", "mirror": {"name": "ORDERS"}}
EU = {"name": "EU", "sources": [{"name": "ORDERS", "filter_subject": "orders.eu"}]}


@pytest.fixture
def streams(tmp_path: Path) -> Commands:
    """Three messages in ORDERS; two of them match EU."""
    found = commands(tmp_path, EU, COPY, ORDERS)
    given = [*lines(2, "orders.eu"), *lines(1, "orders.us")]
    assert found.run("publish", "ORDERS", stdin="\n".join(given)).exit_code == 0
    return found


def test_all_streams_that_take_are_brought_up_to_their_origins(streams: Commands) -> None:
    done = streams.run("mirror")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "EU: stored 2 messages, sequences 1 to 2",
        "  from ORDERS: 2 messages up to its sequence 3, 1 not stored",
        "COPY: stored 3 messages, sequences 1 to 3",
        "  from ORDERS: 3 messages up to its sequence 3",
    ]
    assert "COPY: mirrored, stored 3 messages" in done.stderr
    assert "EU: stored 0 messages\n" in streams.run("mirror", "EU").stdout


def test_the_numbers_are_there_for_programs(streams: Commands) -> None:
    answer = streams.json("mirror", "COPY", "--as-of", 5)
    assert answer["as_of_ns"] == 5
    (entry,) = answer["streams"]
    numbers = ("messages", "skipped", "missing", "rolled_up", "first_seq", "last_seq")
    assert [entry[name] for name in numbers] == [3, 0, 0, 0, 1, 3]
    assert entry["stream"] == "COPY"
    assert entry["bytes"] == streams.json("state", "ORDERS")[0]["bytes"]
    (origin,) = entry["origins"]
    assert (origin["origin"], origin["position"], origin["stalled"]) == ("ORDERS", 3, None)


def test_a_stream_that_takes_from_nowhere_is_a_usage_error(streams: Commands) -> None:
    done = streams.run("--format", "json", "mirror", "ORDERS")
    assert done.exit_code == 2
    assert "no mirror and no sources" in done.stderr
    assert json.loads(done.stdout)["streams"][0]["error"]["exit_code"] == 2


def test_a_stream_that_stalls_ends_with_4_and_the_others_go_on(tmp_path: Path) -> None:
    narrow = {**COPY, "max_msgs": 1, "discard": "new"}
    found = commands(tmp_path, narrow, EU, ORDERS)
    found.run("publish", "ORDERS", stdin="\n".join(lines(2, "orders.eu")))
    done = found.run("mirror")
    assert done.exit_code == 5
    assert "COPY: sequence 2 of ORDERS and all later ones were not copied" in done.stderr
    assert "EU: stored 2 messages" in done.stdout
    assert found.run("mirror", "COPY").exit_code == 4


def test_without_mirrors_and_sources_nothing_is_done(tmp_path: Path) -> None:
    found = commands(tmp_path, ORDERS)
    assert found.json("mirror", "--as-of", NOW - 1)["streams"] == []


def test_the_future_is_refused(streams: Commands) -> None:
    done = streams.run("mirror", "--as-of", "2200-01-01T00:00:00Z")
    assert done.exit_code == 2
    assert "later than now" in done.stderr
