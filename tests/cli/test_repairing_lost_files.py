"""Missing, damaged or foreign files of a table: given up by name, and restored if they are found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.sandboxes import Commands, commands, lines

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "segment_span": "5h"}


@pytest.fixture(params=["delta", "parquet"])
def orders(tmp_path: Path, request: pytest.FixtureRequest) -> Commands:
    """Messages 1 to 12 in three segments, of 5, 5 and 2."""
    command = commands(tmp_path, ORDERS, format=request.param)
    command.json("publish", "ORDERS", "-", stdin="\n".join(lines(12)))
    return command


def file_of(command: Commands, segment: int) -> Path:
    place = command.folder / f"streams/ORDERS/messages/partition=0/segment={segment}"
    return next(place.glob("*.parquet"))


def held(command: Commands) -> list[int]:
    done = command.run("messages", "ORDERS")
    assert done.exit_code == 0, done.output
    return [int(line.split()[0]) for line in done.stdout.splitlines()]


def test_what_a_lost_file_held_is_given_up_and_its_sequences_are_not_given_out_again(
    orders: Commands, tmp_path: Path
) -> None:
    place = file_of(orders, 11)
    shutil.copy(place, tmp_path / "found.parquet")
    place.unlink()
    path = place.relative_to(orders.folder / "streams/ORDERS/messages")
    refused = orders.run("messages", "ORDERS")
    assert refused.exit_code == 6
    assert refused.stderr == (
        f"{place}: this data file of stream ORDERS is missing; nothing was changed; restore the file from a copy, or "
        f"give up what it held: `retention repair lost ORDERS {path} --yes`\n"
    )
    assert "`retention repair lost ORDERS --yes`" in orders.run("doctor", "ORDERS").stdout
    dry = orders.run("repair", "lost", "ORDERS")
    assert dry.stdout == (
        "ORDERS: would remove 1 file from the table\n"
        f"  {path}: this data file of stream ORDERS is missing; gives up 2 messages among sequences 11 to 12\n"
        "  nothing was changed; repeat it with --yes\n"
    )
    done = orders.json("repair", "lost", "ORDERS", "--yes")
    assert (done["removed_messages"], done["files"][0]["last_seq"]) == (2, 12)
    assert held(orders) == list(range(1, 11))
    assert orders.json("repair", "lost", "ORDERS", "--yes")["run"] is None
    [record, *_] = orders.json("history", "ORDERS")
    assert (record["kind"], record["repair"], record["run"]) == ("repair", "lost", done["run"])
    orders.json("publish", "ORDERS", "-", stdin=lines(1)[0])
    assert held(orders) == [*range(1, 11), 13]
    assert orders.run("undo", done["run"]).exit_code == 6, "it is not found yet"
    place.parent.mkdir(parents=True, exist_ok=True)
    trash = orders.folder / "streams/ORDERS/_retention/trash" / path
    back = place if "delta" in (orders.folder / "retention.yaml").read_text() else trash
    back.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(tmp_path / "found.parquet", back)
    assert orders.json("undo", done["run"])["restored_messages"] == 2
    assert held(orders) == list(range(1, 14))


def test_a_sequence_that_was_given_up_is_explained_by_its_repair(orders: Commands) -> None:
    file_of(orders, 11).unlink()
    done = orders.json("repair", "lost", "ORDERS", "--yes")
    explained = orders.run("explain", "ORDERS", 12).stdout
    assert explained.startswith(f"ORDERS 12 was removed by run {done['run']} of ")
    assert ": a repair (lost); undo cannot restore it: files that held it were deleted" in explained
    [exported, *_] = orders.json("history", "export", "ORDERS")["runs"]
    assert (exported["kind"], exported["run"]) == ("repair lost", done["run"])
    assert [part["ranges"] for part in exported["removed"]] == [[[11, 12]]]


def test_only_what_is_wrong_is_given_up(orders: Commands) -> None:
    sound, other = file_of(orders, 1), file_of(orders, 6)
    assert orders.json("repair", "lost", "ORDERS", sound, "--yes")["run"] is None
    unknown = orders.run("repair", "lost", "ORDERS", "nonsense.parquet")
    assert unknown.exit_code == 2
    assert "the table has no file nonsense.parquet" in unknown.stderr
    other.write_bytes(b"x" * other.stat().st_size)
    assert orders.json("repair", "lost", "ORDERS", sound, other)["removed_messages"] == 5
    for place in (sound, other, file_of(orders, 11)):
        place.unlink()
    refused = orders.run("repair", "lost", "ORDERS", "--yes")
    assert refused.exit_code == 4
    assert "none of its 3 files can be read, as where a disk is not mounted" in refused.stderr
