"""Two users of one group, with umask 002 and a shared directory: the second user can continue the work of the first."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from retention.stores.lease import held
from tests.support.sandboxes import Commands, configured, lines

FIRST, SECOND, GROUP = 61_001, 61_002, 61_500
POLICY = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "max_msgs": 20,
    "grace": "0s",
    "compact": {"min_files": 2},
    "consumers": [{"durable_name": "billing", "ack_policy": "explicit"}],
}


@contextmanager
def another_user() -> Iterator[None]:
    """Act as a user with only the group's permissions during the block."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(GROUP)
    os.seteuid(SECOND)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@pytest.fixture(autouse=True)
def umask_of_a_group() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.fixture(params=["delta", "parquet"])
def command(request: pytest.FixtureRequest) -> Iterator[Commands]:
    # Pytest's own directories are private to their owner.
    with TemporaryDirectory() as place:
        Path(place).chmod(0o2775)
        yield _configured(Path(place, "lake"), request.param)


def _configured(folder: Path, form: str) -> Commands:
    archive = f"{folder}/archive"
    configured(folder, POLICY | {"archive": archive}, format=form)
    file = folder / "retention.yaml"
    settings: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    settings["buckets"] = [{"name": "prices", "history": 2, "grace": "0s"}]
    settings["topics"] = [{"name": "clicks", "partitions": 2, "message_expiry": "7d"}]
    file.write_text(json.dumps(settings), encoding="utf-8")
    return Commands(folder)


def work(command: Commands) -> None:
    """Run one of most kinds of writes."""
    topic = [json.dumps({"data": "x"})] * 3
    for words, stdin in (
        (("publish", "ORDERS"), "\n".join(lines(24))),
        (("publish", "ORDERS"), "\n".join(lines(6))),
        (("publish", "clicks"), "\n".join(topic)),
        (("kv", "prices", "put", "eur", "1"), ""),
        (("kv", "prices", "delete", "eur"), ""),
        (("plan", "ORDERS", "-o", str(command.folder / "plan.json")), ""),
        (("apply", "--yes"), ""),
        (("undo", _last_run), ""),
        (("apply", "--yes"), ""),
        (("compact", "--yes"), ""),
        (("reclaim", "--yes"), ""),
        (("state",), ""),
        (("export", "nats-backup", "ORDERS", str(command.folder / f"{os.geteuid()}.tar.s2")), ""),
    ):
        done = command.run(
            *(word(command) if callable(word) else word for word in words), stdin=stdin
        )
        assert done.exit_code == 0, (words, done.output)


def _last_run(command: Commands) -> str:
    return str(
        next(run["run"] for run in command.json("history", "ORDERS") if run["kind"] == "apply")
    )


def shared_by_owner_alone(folder: Path) -> list[str]:
    return [
        f"{oct(path.stat().st_mode)} {path.relative_to(folder)}"
        for path in folder.rglob("*")
        if path.stat().st_mode & 0o060 != 0o060
    ]


def test_who_comes_second_goes_on_where_the_first_was(command: Commands) -> None:
    work(command)
    assert shared_by_owner_alone(command.folder) == []
    if os.geteuid() != 0:
        pytest.skip("only root can play two users")
    for path in (command.folder, *command.folder.rglob("*")):
        shutil.chown(path, FIRST, GROUP)
        if path.is_dir():
            path.chmod(0o2775)
    with another_user():
        work(command)


def test_a_lease_of_an_earlier_version_becomes_its_groups(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    lease = tmp_path / "append.lease"
    lease.touch(0o644)
    lease.chmod(0o644)
    with held(str(lease), wait_s=0):
        assert lease.stat().st_mode & 0o777 == 0o664
    tmp_path.chmod(0o755)
    lease.chmod(0o644)
    with held(str(lease), wait_s=0):
        assert lease.stat().st_mode & 0o777 == 0o644
