"""Each planted damage of a topic is found by its check: of its files and log, its offsets, and its settings."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.core.units import DAY, HOUR
from retention.errors import DamagedError
from tests.retention.verify.test_damages import edit, flip
from tests.support.command_line import invoke
from tests.support.topic_crashes import import_logs, with_logs
from tests.support.topics import NAME, START, Clock, World, line

LATER = START + DAY


@pytest.fixture(scope="module", params=["delta", "parquet"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A topic of two partitions with a pass, and a reader in each."""
    clock = Clock()
    said = {"message_expiry": "1h"}
    world = World(tmp_path_factory.mktemp(request.param), request.param, said, clock)
    for batch in (1, 2, 3, 4):
        lines = [line("x" * 600_000, partition=0), line("y", partition=1)]
        world.topic.publish(lines, "app", batch)
        clock.now_ns += HOUR
    world.topic.store_offset(0, "consumer", "7", 2)
    world.topic.store_offset(1, "group", "3", 0)
    world.topic.store_offset(1, "group", "3", 1)
    assert world.topic.plan().apply().removed_messages > 0
    clock.now_ns = LATER
    assert world.topic.verify().verdict == "ok"
    return world


@pytest.fixture
def topic(whole: World, tmp_path: Path) -> World:
    return _copied(whole, tmp_path / "warehouse")


def _copied(world: World, folder: Path) -> World:
    shutil.copytree(world.folder, folder, symlinks=True)
    return World(folder, world.format, world.said, Clock(LATER))


def _root(world: World) -> Path:
    return world.folder / "streams" / NAME


def _live(world: World, partition: int) -> Path:
    paths = world.topic.opened.store.snapshot().files["path"].to_pylist()
    path = next(each for each in sorted(paths) if each.startswith(f"partition={partition}/"))
    return _root(world) / "messages" / path


def _newest_offsets(world: World) -> Path:
    return max((_root(world) / "offsets").rglob("*.json"))


def _move_a_reader_beyond_the_end(world: World) -> None:
    def move(fields: dict[str, Any]) -> None:
        fields["of"][0][3] = 4

    edit(_newest_offsets(world), move)


def _exchange_partitions(world: World) -> None:
    one, other = _live(world, 0), _live(world, 1)
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


DAMAGES: dict[str, tuple[str, Callable[[World], object]]] = {
    "a bit of a file is flipped": ("content", lambda at: flip(_live(at, 1), 60)),
    "a file is missing": ("size", lambda at: _live(at, 0).unlink()),
    "files of two partitions are exchanged": ("size", _exchange_partitions),
    "the offsets are damaged": ("consumers", lambda at: flip(_newest_offsets(at), 30)),
    "the offsets are missing": ("consumers", lambda at: shutil.rmtree(_root(at) / "offsets")),
    "a reader is beyond the end": ("consumers", _move_a_reader_beyond_the_end),
    "evidence is missing": (
        "undo or evidence",
        lambda at: next(_root(at).rglob("*.ranges.arrow")).unlink(),
    ),
}
"""The damage → the check that finds it, and how it is planted."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_planted_damage_of_a_topic_is_found_by_its_check(topic: World, damage: str) -> None:
    kept = _copied(topic, topic.folder.with_name("kept"))
    check, plant = DAMAGES[damage]
    plant(topic)
    result = topic.topic.verify()
    assert {each.check for each in result.damages} & set(check.split(" or ")), result
    assert all(each.remedy and each.detail for each in result.damages), result.damages
    shutil.rmtree(topic.folder)
    assert _copied(kept, topic.folder).topic.verify().verdict == "ok", "the copy restores it"


def test_a_reader_beyond_the_end_stores_its_offset_again(topic: World) -> None:
    _move_a_reader_beyond_the_end(topic)
    [damage] = topic.topic.verify().damages
    words = damage.remedy.split("`retention ")[1].rstrip("`").replace("OFFSET", "3").split()
    config = ["--config", str(topic.folder / "retention.yaml")]
    assert invoke([*config, *words]).exit_code == 0
    assert topic.topic.verify().verdict == "ok"


def test_damaged_settings_of_a_topic_are_named(topic: World) -> None:
    place = _root(topic) / "_retention" / "topic.json"
    flip(place, 5)
    [outcome] = topic.warehouse.verify()
    assert isinstance(outcome.error, DamagedError)
    done = invoke(["--config", str(topic.folder / "retention.yaml"), "verify", NAME])
    assert (done.exit_code, str(place) in done.stderr, "delete it" in done.stderr) == (
        6,
        True,
        True,
    )
    place.unlink()
    assert topic.topic.verify().verdict == "ok", "the configuration's settings count then"


def test_offsets_that_a_server_had_beyond_its_messages_are_no_damage(tmp_path: Path) -> None:
    with_logs(tmp_path, "delta")
    readers = tmp_path / "iggy" / "partitions" / "0" / "offsets" / "consumers"
    (readers / "7").write_bytes((99).to_bytes(8, "little"))
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=Clock())
    import_logs(warehouse, tmp_path)
    assert warehouse.topic(NAME).verify().verdict == "ok"
