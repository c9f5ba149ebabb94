"""Two histories of a table with newest entries of equal length and time: no cache of the other one is used."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention.core.units import HOUR
from retention.planners import afresh
from retention.stores.parquet import listing
from retention.stores.parquet import log as parquet_log
from tests.support.sandboxes import NOW, Commands, commands, lines

YOUNG, OLD = NOW + 2 * HOUR, NOW - 5 * HOUR
"""Times of the last message in the two histories, of equal length as text."""
AT = "2027-01-15T08:30:00Z"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afresh, "MANY_FILES", 1)
    monkeypatch.setattr(listing, "WORTH_FILES", 1)
    monkeypatch.setattr(listing, "COARSE_NS", 0)


def stream(folder: Path, format_: str, **limits: Any) -> Commands:
    return commands(folder, {"name": "ORDERS", "subjects": ["orders.>"], **limits}, format=format_)


def root(command: Commands) -> Path:
    return command.folder / "streams" / "ORDERS"


def log_of(command: Commands) -> Path:
    own = root(command) / "_retention" / "log"
    return own if own.exists() else root(command) / "messages" / "_delta_log"


def newest(command: Commands) -> Path:
    return max(log_of(command).glob("*.json"))


def publish(command: Commands, count: int, first_ns: int) -> None:
    text = "\n".join(lines(count, "orders.new", first_ns))
    command.json("publish", "ORDERS", "-", stdin=text)


def plan(command: Commands) -> dict[str, Any]:
    [entry] = command.json("plan", "--as-of", AT)["streams"]
    return {name: entry[name] for name in ("removed_messages", "by_rule", "version_before")}


def without_caches(command: Commands) -> dict[str, Any]:
    """The plan without caches."""
    own = root(command) / "_retention"
    (own / "due.json").unlink(missing_ok=True)
    shutil.rmtree(own / "ledger", ignore_errors=True)
    return plan(command)


def alike(entry: Path, other: Path, stat: os.stat_result) -> None:
    """Give an entry the length and time of another one."""
    own, wanted = entry.read_bytes(), len(other.read_bytes())
    assert len(own) <= wanted, "choose messages the other way round"
    entry.write_bytes(own.rstrip(b"\n") + b" " * (wanted - len(own)) + b"\n" * own.endswith(b"\n"))
    assert entry.stat().st_size == wanted
    os.utime(entry, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def diverge(
    command: Commands, one: Callable[[], None], other: Callable[[], None], backup: Path
) -> dict[str, Any]:
    """Follow one history, plan, restore only the table, and follow the other history; returns the cached plan."""
    table = root(command) / "messages"
    shutil.copytree(table, backup / "messages")
    one()
    told = [plan(command) for _ in range(3)]
    assert told[0] == told[1] == told[2]
    mine, copy = newest(command), backup / "newest"
    shutil.copy2(mine, copy)
    stat = mine.stat()
    shutil.rmtree(table)
    shutil.copytree(backup / "messages", table)
    other()
    assert newest(command).name == mine.name
    alike(newest(command), copy, stat)
    return told[0]


def test_a_due_instant_of_another_history_hides_nothing(tmp_path: Path) -> None:
    command = stream(tmp_path / "w", "delta", max_age="5h")
    publish(command, 3, NOW)
    command.json("purge", "ORDERS", "--yes")
    told = diverge(
        command,
        lambda: publish(command, 1, YOUNG),
        lambda: publish(command, 1, OLD),
        tmp_path / "b",
    )
    assert told["removed_messages"] == 0
    assert plan(command) == without_caches(command)
    assert plan(command)["removed_messages"] == 1


def test_a_ledger_of_another_history_removes_nothing_that_is_not_due(tmp_path: Path) -> None:
    command = stream(tmp_path / "w", "delta", max_msgs=100)
    publish(command, 10, NOW)
    told = diverge(
        command,
        lambda: publish(command, 180, NOW),
        lambda: publish(command, 100, NOW),
        tmp_path / "b",
    )
    assert told["removed_messages"] == 90
    assert plan(command) == without_caches(command)
    assert plan(command)["removed_messages"] == 10
    [entry] = command.json("apply", "--yes", "ORDERS")["streams"]
    assert entry["removed_messages"] == 10


def test_a_ledger_is_not_brought_up_to_date_from_another_history(tmp_path: Path) -> None:
    command = stream(tmp_path / "w", "delta", max_msgs=100)
    publish(command, 10, NOW)
    diverge(
        command,
        lambda: publish(command, 180, NOW),
        lambda: publish(command, 100, NOW),
        tmp_path / "b",
    )
    publish(command, 1, NOW)
    assert plan(command)["removed_messages"] == 11


def test_an_entry_rewritten_in_place_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    command = stream(tmp_path / "w", "parquet", max_age="5h")
    publish(command, 1, NOW)
    time.sleep(0.05)
    assert [plan(command)["removed_messages"] for _ in range(3)] == [0, 0, 0]
    entry = newest(command)
    stat, content = entry.stat(), entry.read_bytes()
    entry.write_bytes(content.replace(str(NOW).encode(), str(NOW - 5 * HOUR).encode()))
    os.utime(entry, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert entry.stat().st_size == stat.st_size
    done = command.run("plan", "ORDERS", "--as-of", AT)
    assert done.exit_code == 6
    assert f"{entry}: this entry of the log of stream ORDERS cannot be read" in done.output


def test_a_list_of_another_history_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_log, "LIST_EVERY", 2)
    command = stream(tmp_path, "parquet", max_msgs=100)
    publish(command, 10, NOW)
    before = set((root(command) / "messages").rglob("*.parquet"))
    publish(command, 180, NOW)
    assert list(log_of(command).glob("*.parquet"))
    newest(command).unlink()
    for path in set((root(command) / "messages").rglob("*.parquet")) - before:
        path.unlink()
    publish(command, 20, NOW)
    [state] = command.json("state")
    assert (state["messages"], state["last_seq"], state["version"]) == (30, 30, 2)


def test_moves_that_another_history_noted_are_still_made(tmp_path: Path) -> None:
    command = stream(tmp_path / "w", "parquet", max_msgs=10)
    publish(command, 10, NOW)
    shutil.copytree(root(command), tmp_path / "b")
    publish(command, 1, NOW)
    publish(command, 1, NOW)
    noted = log_of(command) / "moved"
    ahead = noted.read_bytes()
    shutil.rmtree(root(command))
    shutil.copytree(tmp_path / "b", root(command))
    noted.write_bytes(ahead)
    publish(command, 2, NOW)
    command.json("apply", "--yes", "ORDERS")
    [state] = command.json("state")
    assert (state["messages"], state["last_seq"]) == (10, 12)
    there = list((root(command) / "messages").rglob("*.parquet"))
    assert sum(pq.read_metadata(path).num_rows for path in there) == 10
    assert not list((root(command) / "_retention/staging").rglob("*.parquet"))
