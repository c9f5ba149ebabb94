"""On a read-only warehouse every read-only command works, and writing commands give one clear sentence."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.sandboxes import Commands, commands, lines
from tests.support.trees import tree

POLICY = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 40, "max_msgs_per_subject": 30}
LOOKS = [
    ("plan",),
    ("state",),
    ("explain", "ORDERS", 150),
    ("messages", "ORDERS"),
    ("history",),
    ("validate",),
]
WRITES = [("apply", "--yes"), ("apply", "--yes", "ORDERS"), ("publish", "ORDERS"), ("undo", "RUN")]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Mount a folder over itself so that not even root can write there."""
    bind = ["mount", "--bind", str(folder), str(folder)]
    if (
        shutil.which("mount") is None
        or subprocess.run(bind, capture_output=True, check=False).returncode
    ):
        pytest.skip("mounting is not permitted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    command = commands(tmp_path / "w", POLICY, format=request.param)
    command.json("publish", "ORDERS", stdin="\n".join([*lines(72), *lines(72, "orders.old")]))
    assert command.run("apply", "--yes").exit_code == 0
    command.json("publish", "ORDERS", stdin="\n".join(lines(24)))
    return command


def answers(command: Commands) -> dict[str, object]:
    """The output of read-only commands."""
    said: dict[str, object] = {}
    for words in LOOKS:
        done = command.run("--format", "json", *words)
        assert done.exit_code == 0, (words, done.output)
        said[" ".join(map(str, words))] = without_costs(json.loads(done.stdout))
    return said


def without_costs(value: object) -> object:
    """A document without the cost and the time of reading."""
    if isinstance(value, dict):
        costs = ("seconds", "files_read", "bytes_read", "plan_id", "lag", "due", "next_due_ns")
        return {
            name: without_costs(one)
            for name, one in value.items()
            if name not in costs and not name.startswith("as_of")
        }
    return [without_costs(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("lost", [False, True], ids=["with what is kept", "without it"])
def test_looking_needs_no_writing(orders: Commands, *, lost: bool) -> None:
    writable = answers(orders)
    if lost:
        for kept in ("stats", "subjects", "disjoint"):
            shutil.rmtree(orders.folder / "streams/ORDERS/_retention" / kept, ignore_errors=True)
    before = tree(orders.folder)
    with read_only(orders.folder):
        assert answers(orders) == writable
    assert tree(orders.folder) == before


def test_moves_that_a_run_left_are_not_needed_to_look(orders: Commands) -> None:
    moved = orders.folder / "streams/ORDERS/_retention/log/moved"
    if not moved.exists():
        pytest.skip("only Parquet streams move files")
    writable = answers(orders)
    moved.write_text("0")
    with read_only(orders.folder):
        assert answers(orders) == writable


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_writing_is_refused_in_one_sentence(orders: Commands, words: tuple[str, ...]) -> None:
    run = orders.json("history")[0]["run"]
    before = tree(orders.folder)
    with read_only(orders.folder):
        done = orders.run(*(run if word == "RUN" else word for word in words), stdin=lines(1)[0])
    said = [line for line in done.stderr.splitlines() if ": failed (" not in line]
    assert done.exit_code == 2, done.output
    assert len(said) == 1, said
    assert "Read-only file system; no commit was left half done; make it readable" in said[0]
    assert tree(orders.folder) == before


def test_the_doctor_says_that_a_warehouse_is_read_only(orders: Commands) -> None:
    with read_only(orders.folder):
        done = orders.run("--format", "json", "doctor")
    assert done.exit_code == 4, done.output
    (wrong,) = [one for one in json.loads(done.stdout) if one["result"] == "problem"]
    assert wrong["check"] == "permissions"
    assert "only commands that look work" in wrong["detail"]
