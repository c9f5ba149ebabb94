"""A killed export leaves no archive, and repeating the command gives the normal result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retention.storage.crash_points import CRASH_AT, Step
from tests.support.sandboxes import ORDERS, Commands, commands, lines

KILLED = -9


def killed(command: Commands, target: Path, at: str) -> int:
    """The exit code of an export killed at a step."""
    run = "from retention.cli.main import main; main()"
    words = ["--config", command.folder / "retention.yaml", "export", "nats-backup", "ORDERS"]
    return subprocess.run(
        [sys.executable, "-c", run, *map(str, words), str(target)],
        env=os.environ | {CRASH_AT: at},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
    ).returncode


@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_export_is_done_again(tmp_path: Path, number: int) -> None:
    command = commands(tmp_path / "lake", ORDERS)
    command.json("publish", "ORDERS", stdin="\n".join(lines(48)))
    command.json("export", "nats-backup", "ORDERS", tmp_path / "calm.arc")
    target = tmp_path / "out" / "killed.arc"
    assert killed(command, target, f"{Step.WRITE_SYNCED}#{number}") == KILLED
    assert not target.exists()
    assert (tmp_path / "out" / "killed.arc.json").exists() == (number == 2)
    told = command.json("export", "nats-backup", "ORDERS", target)
    for name in ("killed.arc", "killed.arc.json"):
        calm = tmp_path / name.replace("killed", "calm")
        assert (tmp_path / "out" / name).read_bytes() == calm.read_bytes()
    assert told["messages"] == 48
