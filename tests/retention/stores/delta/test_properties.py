from __future__ import annotations

import logging
from pathlib import Path

import pytest
from deltalake import DeltaTable

from retention.core.units import DAY
from retention.delta.snapshot import read
from retention.ports import Store
from retention.stores import StoreSettings, stream_table
from retention.stores.delta.properties import differing, grace_properties
from tests.contract.streams import append, latest, removing
from tests.support.sandboxes import NOW, commands, lines

STREAM = {"name": "ORDERS", "subjects": ["orders.>"], "max_age": "400d"}
REMOVED, VERSIONS = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"


def opened(place: Path, grace_days: int) -> Store:
    settings = StoreSettings(grace_ns=grace_days * DAY)
    return stream_table(
        str(place / "ORDERS"), "ORDERS", settings, lambda: 1_800_000_000 * 10**9
    ).store()


def table(place: Path) -> DeltaTable:
    return DeltaTable(str(place / "ORDERS/messages"))


def test_a_grace_that_was_changed_is_written_into_the_table_by_the_next_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = opened(tmp_path, 7)
    store.create()
    for first in (1, 4):
        append(store, range(first, first + 3))
    store.finish()
    assert table(tmp_path).version() == 2
    changed = opened(tmp_path, 3)
    snapshot, found = latest(changed)
    changed.commit(removing(found.slice(0, 1)), snapshot)
    with caplog.at_level(logging.WARNING):
        changed.finish()
    assert "delta.deletedFileRetentionDuration = interval 259200 seconds" in caplog.text
    properties = table(tmp_path).metadata().configuration
    assert properties[REMOVED] == f"interval {3 * 86_400} seconds"
    assert properties[VERSIONS] == f"interval {14 * 86_400} seconds"
    append(changed, range(7, 9))
    changed.finish()
    assert table(tmp_path).version() == 5


def test_a_stream_of_which_nothing_is_due_follows_as_well(tmp_path: Path) -> None:
    def given(grace: str) -> str:
        command = commands(tmp_path, {**STREAM, "grace": grace}, format="delta")
        if grace == "7d":
            command.json("publish", "ORDERS", "-", stdin="\n".join(lines(3, "orders.new", NOW)))
        for _ in range(2):
            assert command.json("apply", "--yes")["streams"][0]["removed_messages"] == 0
        place = str(tmp_path / "streams/ORDERS/messages")
        return DeltaTable(place).metadata().configuration[REMOVED] or ""

    assert [given("7d"), given("9d")] == ["interval 604800 seconds", "interval 777600 seconds"]


@pytest.mark.parametrize(
    ("removed", "versions", "changed"),
    [
        ("interval 1 week", "interval 2 weeks", set()),
        ("interval 7 days", "interval 400 days", set()),
        ("INTERVAL 6 days 24 hours", "interval 14 days", set()),
        ("interval 8 days", "interval 15 days", {REMOVED}),
        ("interval 7 days", "interval 7 days", {VERSIONS}),
        ("a while", "interval 2 weeks", {REMOVED}),
    ],
)
def test_intervals_are_compared_by_their_length(
    tmp_path: Path, removed: str, versions: str, changed: set[str]
) -> None:
    opened(tmp_path, 7).create()
    made = table(tmp_path)
    made.alter.set_table_properties({REMOVED: removed, VERSIONS: versions})
    assert set(differing(read(str(tmp_path / "ORDERS/messages")), 7 * DAY)) == changed


def test_a_table_that_says_nothing_has_deltas_own_properties(tmp_path: Path) -> None:
    assert grace_properties(7 * DAY)[REMOVED] == "interval 604800 seconds"
    opened(tmp_path, 7).create()
    assert differing(read(str(tmp_path / "ORDERS/messages")), 7 * DAY) == {}
