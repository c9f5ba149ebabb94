"""A clock that was ahead permanently affects a topic's partition: this is reported, and a repair resets it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from retention.core.units import DAY
from tests.support.sandboxes import Commands
from tests.support.topics import NAME, START, World, line

YEARS = 74 * 365 * DAY


@pytest.fixture(params=["delta", "parquet"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Messages from ten days ago, one by a clock that was ahead, and some from five days ago."""
    world = World(tmp_path, request.param)
    world.configure(message_expiry="1d", roll_after="1h")
    for at, count in ((START - 10 * DAY, 3), (START + YEARS, 1), (START - 5 * DAY, 3)):
        world.clock.now_ns = at
        world.topic.publish([line("x", partition=0) for _ in range(count)])
    world.clock.now_ns = START
    world.topic.publish([line("y", partition=1)])
    return world


def times(world: World, partition: int) -> dict[int, int]:
    return {row["seq"]: row["ts_ns"] for row in world.rows() if row["partition"] == partition}


def test_what_a_clock_that_was_ahead_stamped_is_said_and_repaired(world: World) -> None:
    world.warehouse.apply([NAME])
    assert set(times(world, 0)) == {3, 4, 5, 6}
    [ahead] = world.topic.state().ahead
    assert (ahead.partition, ahead.first_seq, ahead.last_seq) == (0, 3, 6)
    assert ahead.is_open
    assert world.topic.plan().plan.ahead == (ahead,)
    assert world.topic.repair_wrong_clock().plan.ahead == (ahead,)
    repaired = world.topic.repair_wrong_clock().apply()
    assert repaired.sealed
    world.topic.publish([line("z", partition=0)])
    assert times(world, 0)[7] == START
    [sealed] = world.topic.state().ahead
    assert not sealed.is_open
    assert not world.topic.repair_wrong_clock().apply().sealed
    world.topic.delete_segments(0, sealed.oldest_segments).apply()
    assert set(times(world, 0)) == {7}
    assert world.topic.state().ahead == ()
    world.clock.now_ns = START + 2 * DAY
    world.warehouse.apply([NAME])
    assert world.rows() == []


def test_commands_say_it_and_their_remedies_work(tmp_path: Path) -> None:
    world = World(tmp_path, "delta")
    world.configure(message_expiry="1d", roll_after="1h")
    now = time.time_ns()  # noqa: TID251  (the clock of the command line)
    for at, count in ((now - 10 * DAY, 3), (now + YEARS, 1), (now - 5 * DAY, 3)):
        world.clock.now_ns = at
        world.topic.publish([line("x", partition=0) for _ in range(count)])
    given = Commands(world.folder)
    assert given.run("apply", "--yes").exit_code == 0
    said = "partition 0: offsets 3 to 6 have later times than the clock, up to "
    for words in (("plan", NAME), ("state", NAME)):
        output = " ".join(given.run(*words).output.split())
        assert said in output, output
        assert (
            "; until then age removes nothing from the partition; `retention repair clock clicks` shows the remedy"
            in output
        )
    doctor = " ".join(given.run("doctor").output.split())
    assert "run `retention repair clock clicks --yes`, which shows how to remove them" in doctor
    [entry] = given.json("state", NAME)
    assert entry["ahead_of_clock"][0]["oldest_segments"] == 1
    dry = given.run("repair", "clock", NAME).output
    assert "nothing was changed; repeat it with --yes" in dry
    done = " ".join(given.run("repair", "clock", NAME, "--yes").output.split())
    assert (
        "its active segment is sealed, so that appended messages have the time of the clock again"
        in done
    )
    assert "`retention delete-segments clicks 0 1 --yes` removes the oldest segment" in done
    assert given.run("publish", NAME, "-", stdin='{"data": "z", "partition": 0}').exit_code == 0
    assert given.run("delete-segments", NAME, "0", "1", "--yes").exit_code == 0
    assert "later times" not in given.run("state", NAME).output
    assert "later times" not in given.run("plan", NAME).output
    [entry] = given.json("state", NAME)
    assert (entry["messages"], "ahead_of_clock" in entry) == (1, False)
