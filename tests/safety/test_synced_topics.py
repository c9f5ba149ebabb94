"""Syncs of a topic onto storage that fails: one sentence, whole commits only, and the next sync goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from retention.api.warehouse import open_warehouse
from retention.iggy.settings import IggySettings
from retention.ingest.sync.iggy import session
from retention.storage import files
from tests.safety.test_failing_object_store import HASTE
from tests.support.buckets import BUCKET, ObjectPath, object_store
from tests.support.command_line import invoke
from tests.support.front import Front, Kind, front_of
from tests.support.recorded_topic import STREAM, TOPIC, RecordedServer
from tests.support.small_disk import fill_disk, small_disk

pytestmark = pytest.mark.slow

NAME = "clicks"
MESSAGES = 45
BATCHES = ("--batch-messages", "10")
Place = tuple[int, int]
"""Partition and offset of a message."""


@dataclass(frozen=True)
class Copy:
    """A topic in step with the recorded server, and the command that syncs it."""

    config: Path

    def sync(self) -> tuple[int, str]:
        """Run `sync iggy` once; returns its exit code, and its error, one sentence; empty: there is none."""
        done = invoke(["--config", str(self.config), "sync", "iggy", NAME, *BATCHES])
        if not done.exit_code:
            return 0, ""
        (said,) = [line for line in done.stderr.splitlines() if ": failed (" not in line]
        return done.exit_code, said

    def held(self) -> list[Place]:
        """The messages, in the order of their places."""
        topic = open_warehouse(self.config, engine="local").topic(NAME)
        if not topic.opened.store.exists():
            return []
        rows = (row for table in topic.messages() for row in table.to_pylist())
        return sorted((row["partition"], row["seq"]) for row in rows)

    def assert_goes_on(self) -> None:
        """The next sync brings what is left, once."""
        assert self.sync() == (0, "")
        held = self.held()
        assert len(held) == len(set(held)) == MESSAGES


@pytest.fixture
def copy_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Copy]:
    """A function that configures a copy: its warehouse and format."""

    @contextmanager
    def connected(
        settings: IggySettings, patience_s: float, **_: object
    ) -> Iterator[RecordedServer]:
        del settings, patience_s
        yield RecordedServer("more")

    monkeypatch.setattr(session, "Connection", connected)
    monkeypatch.setenv("IGGY_USERNAME", "iggy")
    monkeypatch.setenv("IGGY_PASSWORD", "iggy")

    def copy(warehouse: str, format_: str) -> Copy:
        sync = {"server": "127.0.0.1:1", "stream": STREAM, "topic": TOPIC}
        topic = {"name": NAME, "partitions": 2, "segment_size": "1MiB", "sync": sync}
        content = {"warehouse": warehouse, "defaults": {"format": format_}, "topics": [topic]}
        config = tmp_path / "retention.yaml"
        config.write_text(json.dumps(content), encoding="utf-8")
        return Copy(config)

    return copy


@pytest.mark.parametrize("format_", ["delta", "parquet"])
@pytest.mark.parametrize("leave", [0, 16_384, 49_152, 98_304])
def test_a_full_disk_keeps_whole_batches(
    tmp_path: Path, copy_at: Callable[[str, str], Copy], format_: str, leave: int
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        copy = copy_at(str(disk / "w"), format_)
        filler = fill_disk(disk, leave)
        code, said = copy.sync()
        filler.unlink()
        held = copy.held()
        assert len(held) in ((0, 10, 20, 30, 40) if code else (MESSAGES,))
        assert leave or not held
        if code:
            assert code == 1
            assert "No space left" in said
            assert ("messages were copied before, and are kept" in said) == bool(held)
        copy.assert_goes_on()


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    """A proxy before an object store, which every access goes through."""
    with object_store() as store, front_of(store["AWS_ENDPOINT_URL"]) as (proxy, address):
        for name, value in (store | {"AWS_ENDPOINT_URL": address}).items():
            monkeypatch.setenv(name, value)
        options = files.storage_options
        monkeypatch.setattr(files, "storage_options", lambda: options() | HASTE)
        yield proxy


def test_an_object_store_that_goes_away_keeps_whole_batches(
    front: Front, copy_at: Callable[[str, str], Copy]
) -> None:
    place = f"s3://{BUCKET}/copy"
    copy = copy_at(place, "delta")
    front.begin()
    assert copy.sync() == (0, "")
    calls = [call for call in front.calls if call.operation == "put if absent"]
    commits = [call.nth for call in calls if call.place == "_delta_log"]
    assert len(commits) > 3
    for number, kind in ((1, Kind.DOWN), (-1, Kind.DOWN), (-1, Kind.DEAD)):
        copy = copy_at(f"{place}-{number}-{kind.name}", "delta")
        front.begin({("put if absent", commits[number]): kind})
        code, said = copy.sync()
        assert code != 0
        assert front.met
        front.begin()
        held = copy.held()
        assert len(held) < MESSAGES or kind is Kind.DEAD, said
        if kind is not Kind.DEAD:
            assert len(held) % 10 == 0
            assert ("messages were copied before, and are kept" in said) == bool(held)
        for lease in ObjectPath(f"{place}-{number}-{kind.name}").rglob("*.lease*"):
            lease.unlink()
        copy.assert_goes_on()
