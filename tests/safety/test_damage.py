"""Whatever file is damaged, what is there stays exactly, or what was asked for happens exactly; never a third thing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.sandboxes import NOW, Commands, commands, lines
from tests.support.trees import overwrite

LIMITS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 10, "segment_span": "5h"}
EARLIER = NOW - 100 * 24 * 3_600 * 10**9
ALL = os.environ.get("RETENTION_FOREIGN") == "all"

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "flipped early": lambda content: _flipped(content, 0.2),
    "flipped": lambda content: _flipped(content, 0.5),
    "flipped late": lambda content: _flipped(content, 0.9),
    "cut in half": lambda content: content[: len(content) // 2],
    "emptied": lambda _: b"",
}
KINDS = {
    "data": "streams/ORDERS/messages/partition=0/**/*.parquet",
    "delta log": "streams/ORDERS/messages/_delta_log/*[1-9].json",
    "checkpoint": "streams/ORDERS/messages/_delta_log/*.checkpoint.parquet",
    "last checkpoint": "streams/ORDERS/messages/_delta_log/_last_checkpoint",
    "parquet log": "streams/ORDERS/_retention/log/*[1-9].json",
    "statistics": "streams/ORDERS/_retention/stats/*.parquet",
    "digest": "streams/ORDERS/_retention/subjects/**/*.parquet",
    "format": "streams/ORDERS/_retention/format.json",
    "undo": "streams/ORDERS/_retention/reports/*.arrow",
    "history": "runs/ORDERS/*.json",
    "plan": "monday*",
}
FEW = ("flipped", "cut in half")


def _flipped(content: bytes, share: float) -> bytes:
    changed = bytearray(content)
    changed[int(len(content) * share)] ^= 0x10
    return bytes(changed)


@pytest.fixture(scope="module", params=["delta", "parquet"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with a run behind it and a saved plan, to be copied."""
    folder = tmp_path_factory.mktemp(str(request.param))
    command = commands(folder, {**LIMITS, "max_msgs": 25}, format=request.param)
    for batch in range(12):
        text = "\n".join(lines(3, first_ns=EARLIER + batch * 3 * 3_600 * 10**9))
        command.json("publish", "ORDERS", "-", stdin=text)
    command.json("apply", "--yes")
    command = commands(folder, LIMITS, format=request.param)
    command.json("plan", "-o", folder / "monday")
    return folder


def seen(command: Commands) -> list[int] | None:
    """The sequences that a reader sees; None if it is refused."""
    done = command.run("messages", "ORDERS", "--format", "jsonl")
    if done.exit_code:
        return None
    return [json.loads(line)["seq"] for line in done.stdout.splitlines()]


BEFORE, AFTER, UNDONE = list(range(12, 37)), list(range(27, 37)), list(range(1, 37))


@pytest.mark.parametrize("damage", [name for name in DAMAGES if ALL or name in FEW])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_refused_or_mended_and_never_acted_upon(
    made: Path, tmp_path: Path, kind: str, damage: str
) -> None:
    hurt = sorted(made.glob(KINDS[kind]))
    if not hurt:
        pytest.skip("the other format keeps no such file")
    run = json.loads(commands_of(made).run("--format", "json", "history").stdout)[0]["run"]
    acts = {
        "apply": (["apply", "--yes", "ORDERS"], AFTER),
        "saved": (["apply", "--yes", "monday"], AFTER),
        "undo": (["undo", run], UNDONE),
    }
    for name, (words, wanted) in acts.items():
        folder = tmp_path / name
        shutil.copytree(made, folder)
        command = commands_of(folder)
        told = [str(folder / word) if word == "monday" else word for word in words]
        kept = {}
        for file in sorted(folder.glob(KINDS[kind])):
            kept[file] = file.read_bytes()
            overwrite(file, DAMAGES[damage](kept[file]))
        done = command.run(*told)
        assert done.exit_code in (0, 2, 4, 6, 75), (name, done.output)
        assert "Traceback" not in done.output
        for file, content in kept.items():
            if file.exists():
                file.write_bytes(content)
        assert seen(command) == (wanted if done.exit_code == 0 else BEFORE), (name, done.output)


def commands_of(folder: Path) -> Commands:
    return Commands(folder)
