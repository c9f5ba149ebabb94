"""Damage to every kind of file of a warehouse: commands have the exact result, or are refused without changes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from retention.planners import afresh
from retention.stores.parquet import listing
from tests.support.sandboxes import NOW, Commands, commands, lines
from tests.support.trees import overwrite

ALL = os.environ.get("RETENTION_FOREIGN") == "all"
LIMITS = {
    "name": "ORDERS",
    "subjects": ["orders.>"],
    "max_msgs": 10,
    "max_msgs_per_subject": 8,
    "segment_span": "5h",
}
EARLIER = NOW - 100 * 24 * 3_600 * 10**9
DONE = (0, 2, 4, 6, 75)


def _flipped(share: float, bit: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        if changed:
            changed[min(int(len(content) * share), len(content) - 1)] ^= bit
        return bytes(changed)

    return flip


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first byte": _flipped(0, 0x01),
    "middle byte": _flipped(0.5, 0x01),
    "last byte": _flipped(1, 0x01),
    **{f"byte at {share}": _flipped(share, 0x01) for share in (0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8)},
    "emptied": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "without its last byte": lambda content: content[:-1],
}
OFTEN = (("delta", "middle byte"), ("parquet", "half"))
FORMATS = ("delta", "parquet")
COMMON = {
    "monday",
    "monday.cause.parquet",
    "monday.files.parquet",
    "monday.markers.parquet",
    "monday.removed.parquet",
    "monday.rules.parquet",
    "runs/ORDERS/*.begun.json",
    "runs/ORDERS/*.done.json",
    "streams/ORDERS/_retention/append.lease",
    "streams/ORDERS/_retention/format.json",
    "streams/ORDERS/_retention/maintenance.lease",
    "streams/ORDERS/_retention/owner.json",
    "streams/ORDERS/_retention/reports/*.added.arrow",
    "streams/ORDERS/_retention/reports/*.ranges.arrow",
    "streams/ORDERS/_retention/reports/*.removed.arrow",
    "streams/ORDERS/_retention/subjects/partition=N/segment=N/*.parquet",
    "streams/ORDERS/messages/partition=N/segment=N/*.parquet",
}
DELTA = {
    "streams/ORDERS/_retention/commits/N.json",
    "streams/ORDERS/_retention/ledger/*.blocks",
    "streams/ORDERS/_retention/ledger/ledger.json",
    "streams/ORDERS/_retention/stats/*.arrow",
    "streams/ORDERS/messages/_delta_log/N.checkpoint.parquet",
    "streams/ORDERS/messages/_delta_log/N.json",
    "streams/ORDERS/messages/_delta_log/_last_checkpoint",
}
PARQUET = {
    "streams/ORDERS/_retention/directories.arrow",
    "streams/ORDERS/_retention/log/N.json",
    "streams/ORDERS/_retention/log/moved",
    "streams/ORDERS/_retention/moves.lock",
    "streams/ORDERS/_retention/trash/partition=N/segment=N/*.parquet",
}


@dataclass(frozen=True)
class Trial:
    """A command, and the remaining sequences if it succeeds."""

    words: tuple[str, ...]
    left: tuple[int, ...]


@dataclass(frozen=True)
class Made:
    """A warehouse after two runs, with a saved plan, and the remaining messages of 36 after each command."""

    folder: Path
    before: tuple[int, ...]
    trials: tuple[Trial, ...]


@pytest.fixture(scope="module", autouse=True)
def ledgers() -> Iterator[None]:
    """Cache inventories before removals, too, and find directories unchanged, even for few files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(afresh, "MANY_FILES", 1)
        patch.setattr(listing, "WORTH_FILES", 1)
        patch.setattr(listing, "COARSE_NS", 50_000_000)
        yield


@pytest.fixture(scope="module", params=FORMATS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp(str(request.param))

    def configured(count: int) -> Commands:
        return commands(folder, {**LIMITS, "max_msgs": count}, format=request.param)

    command = configured(30)
    for batch in range(12):
        text = "\n".join(
            line
            for subject in ("orders.new", "orders.old", "orders.paid")
            for line in lines(1, subject, EARLIER + batch * 3 * 3_600 * 10**9)
        )
        command.json("publish", "ORDERS", "-", stdin=text)
    command.json("apply", "--yes")
    command = configured(22)
    command.json("apply", "--yes")
    command = configured(10)
    command.json("plan", "-o", folder / "monday")
    command.run("messages", "ORDERS", "--format", "jsonl")
    runs = [run["run"] for run in command.json("history")]
    before = seen(command)
    assert before is not None
    words: list[tuple[str, ...]] = [
        ("apply", "--yes", "ORDERS"),
        ("apply", "--yes", "monday"),
        ("undo", max(runs)),
        ("state",),
        ("plan", "ORDERS"),
        ("explain", "ORDERS", str(before[0])),
    ]
    asked = words if ALL else words[:3]
    return Made(folder, tuple(before), tuple(_calm(folder, told) for told in asked))


def _calm(folder: Path, words: tuple[str, ...]) -> Trial:
    with copied(folder) as command:
        assert run(command, words) == 0
        left = seen(command)
    assert left
    return Trial(words, tuple(left))


class copied:  # noqa: N801
    """A temporary copy of a warehouse."""

    def __init__(self, folder: Path) -> None:
        self.copy = folder.with_name(folder.name + "-copy")
        shutil.copytree(folder, self.copy, symlinks=True)

    def __enter__(self) -> Commands:
        return Commands(self.copy)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.copy)


def run(command: Commands, words: tuple[str, ...]) -> int:
    told = [str(command.folder / word) if word == "monday" else word for word in words]
    done = command.run(*told)
    assert "Traceback" not in done.output
    return done.exit_code


def seen(command: Commands) -> list[int] | None:
    """The sequences in a reader's view; None if it is refused."""
    done = command.run("messages", "ORDERS", "--format", "jsonl")
    if done.exit_code:
        return None
    return [json.loads(line)["seq"] for line in done.stdout.splitlines()]


def kind_of(path: str) -> str:
    """The name of a file without parts that differ between files of one kind."""
    name = re.sub(r"[0-9a-f]{32}|\d{8}T[0-9.]+Z-[0-9a-f]{6}", "*", path)
    name = re.sub(r"\d{20}-[0-9a-f]{8}-\d+", "*", name)
    return re.sub(r"\d+", "N", re.sub(r"segment=\d+", "segment=N", name))


def files_of(folder: Path) -> Iterator[str]:
    """The newest file of each kind, except hand-written files."""
    every = sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.name != "retention.yaml"
    )
    return iter({kind_of(path): path for path in every}.values())


def test_the_kinds_of_files_are_the_known_ones(made: Made) -> None:
    kinds = {kind_of(path) for path in files_of(made.folder)}
    logs = DELTA if (made.folder / "streams/ORDERS/messages/_delta_log").exists() else PARQUET
    assert kinds == COMMON | logs


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("made", "damage"),
    [(format_, name) for format_ in FORMATS for name in DAMAGES] if ALL else OFTEN,
    indirect=["made"],
)
def test_damage_to_any_file_is_refused_or_mended(made: Made, damage: str) -> None:
    wrong = [
        f"{path}: {' '.join(trial.words)}: {said}"
        for path in files_of(made.folder)
        for trial in made.trials
        if (said := _wrong(made, trial, path, DAMAGES[damage]))
    ]
    assert not wrong, "\n".join(wrong)


def _wrong(made: Made, trial: Trial, path: str, damage: Callable[[bytes], bytes]) -> str | None:
    """The violations after the command met the damage and the file was restored."""
    with copied(made.folder) as command:
        file = command.folder / path
        content = file.read_bytes()
        overwrite(file, damage(content))
        code = run(command, trial.words)
        if code not in DONE:
            return f"exit code {code}"
        if file.exists() and not _is_rewritten(file, damage(content)):
            overwrite(file, content)
        found = seen(command)
        expected = list(trial.left if code == 0 else made.before)
        return None if found == expected else f"exit code {code}, left are {found}"


def _is_rewritten(file: Path, damaged: bytes) -> bool:
    return file.read_bytes() != damaged
