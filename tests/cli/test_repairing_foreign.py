"""Foreign files in a Parquet stream: reported by every command, and quarantined by a repair."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from retention.storage.crash_points import Step
from tests.contract.streams import rows
from tests.support.kills import killed_at
from tests.support.sandboxes import Commands, commands, lines
from tests.support.trees import tree

ORDERS = {"name": "ORDERS", "subjects": [">"], "no_ack": True}


def put(
    place: Path, segment: int, seqs: range, name: str = "", partition: int = 0, without: str = ""
) -> Path:
    folder = place / f"partition={partition}/segment={segment}"
    folder.mkdir(parents=True, exist_ok=True)
    table = rows(seqs)
    path = folder / f"{name or f'mirror-{seqs.start}'}.parquet"
    pq.write_table(table.drop_columns([without]) if without else table, path)
    return path


def junk(place: Path, segment: int) -> None:
    put(place, segment, range(1)).write_bytes(b"junk")


def twice(place: Path) -> None:
    put(place, 1, range(5, 8))
    put(place, 1, range(7, 9))


SHORT = "below the base of its segment"
BAD: dict[str, Callable[[Path], object]] = {
    SHORT: lambda place: put(place, 500, range(1, 4)),
    "does not lie in partition=0": lambda place: put(place, 500, range(500, 504), partition=1),
    "the column seq is missing": lambda place: put(place, 500, range(500, 504), without="seq"),
    "cannot be read as a data file": lambda place: junk(place, 500),
    "stands twice": twice,
}


def stream(folder: Path) -> tuple[Commands, Path]:
    command = commands(folder, ORDERS, format="parquet")
    return command, folder / "streams/ORDERS/messages"


def publish(command: Commands, count: int = 1) -> int:
    done = command.run("publish", "ORDERS", "-", stdin="\n".join(lines(count)))
    return done.exit_code


def kept(command: Commands) -> dict[str, bytes]:
    """All files, except leases and caches."""
    found = {path: path.read_bytes() for path in command.folder.rglob("*") if path.is_file()}
    return {
        str(path): content
        for path, content in found.items()
        if path.suffix != ".lease" and "subjects" not in path.parts
    }


def seqs(command: Commands) -> list[int]:
    done = command.run("--format", "jsonl", "messages", "ORDERS")
    assert done.exit_code == 0, done.output
    return [json.loads(line)["seq"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("why", "made"), [*((why, False) for why in BAD), ("stands twice", True), (SHORT, True)]
)
def test_every_look_names_what_cannot_be_taken_in_and_nothing_is_changed(
    tmp_path: Path, why: str, made: bool
) -> None:
    command, place = stream(tmp_path)
    if made:
        assert publish(command, 4) == 0
    BAD[why](place)
    before = kept(command)
    looks = (["state"], ["plan"], ["doctor"], ["publish", "ORDERS", "-"], ["apply", "--yes"])
    for words in looks:
        done = command.run(*words, stdin=lines(1)[0])
        assert done.exit_code in {4, 6}, (words, done.output)
        assert why in done.output
        assert "retention repair foreign ORDERS" in done.output
        assert "mirror-" in done.output
    assert kept(command) == before
    found = command.json("repair", "foreign", "ORDERS")
    assert (found["run"], len(found["files"])) == (None, 1)
    moved = command.json("repair", "foreign", "ORDERS", "--yes")
    [gone] = moved["files"]
    aside = Path(moved["directory"], gone["path"])
    assert aside.read_bytes() == before[str(place / gone["path"])]
    assert not (place / gone["path"]).exists()
    assert publish(command) == 0
    [record] = [one for one in command.json("history") if one["kind"] == "repair"]
    assert (record["run"], record["repair"], record["files"]) == (
        moved["run"],
        "foreign",
        moved["files"],
    )
    assert command.json("repair", "foreign", "ORDERS", "--yes")["files"] == []
    assert command.run("doctor").exit_code == 0


def test_files_that_keep_the_rules_begin_a_stream(tmp_path: Path) -> None:
    command, place = stream(tmp_path)
    put(place, 1, range(1, 4))
    put(place, 4, range(4, 9))
    assert command.run("doctor").exit_code == 0
    [state] = command.json("state")
    assert (state["messages"], state["last_seq"]) == (8, 8)
    assert publish(command) == 0
    assert seqs(command) == list(range(1, 10))


def test_what_can_be_taken_in_stays_and_what_excludes_it_goes(tmp_path: Path) -> None:
    command, place = stream(tmp_path)
    assert publish(command, 4) == 0
    put(place, 1, range(5, 8), "a")
    put(place, 1, range(7, 10), "b")
    put(place, 1, range(8, 10), "c")
    put(place, 2, range(20, 30), "d")
    put(place, 10, range(10, 13), "e")
    moved = command.json("repair", "foreign", "ORDERS", "--yes")
    assert [Path(one["path"]).stem for one in moved["files"]] == ["b", "d"]
    assert seqs(command) == list(range(1, 13))
    assert publish(command) == 0
    assert seqs(command) == list(range(1, 14))


def test_a_killed_repair_is_settled_with_what_it_moved(tmp_path: Path) -> None:
    command, place = stream(tmp_path)
    assert publish(command, 4) == 0
    for number in range(3):
        put(place, 500 + number, range(1, 3), f"bad-{number}")
    with killed_at(Step.FILE_MOVED):
        command.run("repair", "foreign", "ORDERS", "--yes")
    moved = command.json("repair", "foreign", "ORDERS", "--yes")
    assert len(moved["files"]) == 2
    second, first = [one for one in command.json("history") if one["kind"] == "repair"]
    assert (len(second["files"]), len(first["files"]), first["status"]) == (2, 1, "done")
    for record in (second, first):
        assert all(Path(record["directory"], one["path"]).exists() for one in record["files"])
    assert publish(command) == 0
    done = command.run("undo", first["run"])
    assert done.exit_code == 2
    assert "removed nothing, so there is nothing to undo" in done.output


def test_a_delta_stream_says_where_files_of_other_writers_stand(tmp_path: Path) -> None:
    command = commands(tmp_path, ORDERS, format="delta")
    before = tree(tmp_path)
    done = command.run("repair", "foreign", "ORDERS", "--yes")
    assert done.exit_code == 4
    assert "is a Delta table" in done.output
    assert {path for path in tree(tmp_path) if not str(path).endswith(".lease")} == set(before)
