"""An auditor's attack: every file of a warehouse is damaged in seven ways, and `verify` finds what is listed here."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from tests.support.sandboxes import NOW, Commands, configured, lines

EVERY = 1 if os.environ.get("RETENTION_ATTACK") else 43
"""Of the damages, `make test` plants every forty-third; `make long NAME=attack` plants all."""
DELETED, CHANGED = "deleted", "changed"
"""A file is deleted; or bits are flipped, it is truncated or emptied."""
BOTH = frozenset({DELETED, CHANGED})


@dataclass(frozen=True)
class Kind:
    """A kind of file, and the damages that `verify` must find."""

    name: str
    pattern: str
    found: frozenset[str]
    why: str = ""
    """The reason why it does not find the others."""


KINDS = (
    Kind("manifest of the archive, or record of an erasure there", r"^archive/.*/manifests/", BOTH),
    Kind("record or report of an erasure", r"_retention/erasures/", BOTH),
    Kind("copy in the archive", r"^archive/.*/messages/", BOTH),
    Kind("label of the archive", r"^archive/", frozenset(), "only for people"),
    Kind("live data file", r"LIVE", BOTH),
    Kind("vector of a removed file", r"^vector of", frozenset(), "its checksum shows it when an undo reads it"),
    Kind("vector in use", r"\.bin$", BOTH),
    Kind("record beside a live file", r"_retention/subjects/.*LIVE", BOTH),
    Kind("removed data file", r"(messages/partition|_retention/trash/).*", frozenset({CHANGED}),
         "VACUUM and reclaim delete removed files"),
    Kind("record beside a removed file", r"_retention/subjects/", frozenset(), "only undo reads it, and compares"),
    Kind("entry of a plain log", r"_retention/log/\d+\.json$", BOTH),
    Kind("newest entry of a Delta log", r"_delta_log/NEWEST", frozenset(), "a checkpoint has its version"),
    Kind("earlier entry of a Delta log", r"_delta_log/\d+\.json$", frozenset(),
         "Delta has no checksums; what contradicts files, statistics or runs is found"),
    Kind("checkpoint", r"checkpoint", frozenset(), "likewise; the entries are there, too"),
    Kind("intent", r"^runs/.*\.begun\.json$", BOTH),
    Kind("outcome", r"^runs/.*\.done\.json$", frozenset({CHANGED}), "of the newest run: the next run makes it again"),
    Kind("record for undo", r"_retention/reports/REMOVING", BOTH),
    Kind("record of a run that removed nothing", r"_retention/reports/", frozenset({CHANGED}),
         "reclaim may have deleted it"),
    Kind("legal hold", r"/holds/", BOTH),
    Kind("newest record of a consumer", r"/consumers/.*NEWEST", frozenset({CHANGED}), "the record before it counts"),
    Kind("newest pause", r"/pauses/.*NEWEST", frozenset({CHANGED}), "the record before it counts"),
    Kind("earlier record of a consumer or pause", r"/consumers/|/pauses/", frozenset(), "nothing reads it"),
    Kind("cache, lease, or label", r"", frozenset(), "made again, or only for people"),
)  # fmt: skip
"""The kinds of files, the first that matches a file first; listed before anything is planted."""


@dataclass(frozen=True)
class Attacked:
    """A warehouse under attack."""

    folder: Path

    @property
    def warehouse(self) -> Warehouse:
        return open_warehouse(self.folder / "retention.yaml", engine="local", clock=lambda: NOW)

    def verdict(self) -> str:
        return self.warehouse.stream("ORDERS").verify(archive=True).verdict


@pytest.fixture(scope="module", params=["delta", "parquet"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """A stream with everything that a warehouse can have."""
    attacked = Attacked(tmp_path_factory.mktemp(request.param))
    stream: dict[str, Any] = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 100}
    stream |= {"segment_size": "4KiB", "archive": "archive", "vectors": request.param == "delta"}
    configured(attacked.folder, stream, format=request.param)
    orders = attacked.warehouse.new_stream("ORDERS")
    for subject in ("orders.a", "orders.b", "orders.a"):
        orders.publish(lines(60, subject))
    command = Commands(attacked.folder)
    one = '{"subject": "orders.a", "data": "x", "headers": {"Nats-Msg-Id": "abc"}}'
    command.run("publish", "ORDERS", "--writer", "w", "--batch", "1", stdin=one)
    orders.plan().apply()
    undone = orders.purge(subject="orders.a").apply()
    attacked.warehouse.undo(undone.run)
    orders.purge(subject="orders.b", keep=10).apply()
    assert command.run("consumer", "add", "ORDERS", "billing").exit_code == 0
    attacked.warehouse.pause(["ORDERS"], reason="a trial")
    attacked.warehouse.resume(["ORDERS"], reason="over")
    hold = attacked.warehouse.hold("ORDERS", reason="a case", from_seq=1, to_seq=2)
    attacked.warehouse.release_hold(hold.id, reason="closed")
    attacked.warehouse.hold("ORDERS", reason="a case", subject="orders.a")
    orders.delete(150, 152).apply()
    assert orders.erase(seqs=[70], reason="request 7").apply().is_done
    assert attacked.verdict() == "ok"
    return attacked


def described(attacked: Attacked) -> Iterator[tuple[Path, str]]:
    """Each file, with a text that patterns match: its path, with words for what only the warehouse knows."""
    snapshot = attacked.warehouse.stream("ORDERS").opened.store.snapshot()
    live = {path.partition(".dv-")[0] for path in snapshot.files["path"].to_pylist()}
    vectors = {
        path.rpartition("-")[2] for path in snapshot.files["path"].to_pylist() if ".dv-" in path
    }
    runs = attacked.warehouse.history(["ORDERS"])
    removing = {run["run"] for run in runs if run.get("removed_messages")}
    files = sorted(path for path in attacked.folder.rglob("*") if path.is_file())
    for path in files:
        text = path.relative_to(attacked.folder).as_posix()
        if text.startswith("streams/") and any(f"/{each}" in text for each in live):
            place = "_retention/subjects/" if "/subjects/" in text else ""
            text = f"{place}LIVE" if "/trash/" not in text else text
        elif path.suffix == ".bin" and path.stem.rpartition("_")[2].replace("-", "") not in vectors:
            text = "vector of a removed file"
        elif path.name.split(".arrow")[0].rpartition(".")[0] in removing:
            text = "_retention/reports/REMOVING"
        elif path == max(path.parent.glob("[0-9]*.json"), default=None):
            text = text.replace(path.name, "NEWEST.json")
        if path.name != "retention.yaml":
            yield path, text


def damages(path: Path, chance: random.Random) -> Iterator[tuple[str, Callable[[Path], object]]]:
    """The damages of a file: what it is, and the function that plants it."""
    content = path.read_bytes()
    yield DELETED, Path.unlink
    if not content:
        return
    yield CHANGED, partial(Path.write_bytes, data=b"")
    for _ in range(4):
        at, bit = chance.randrange(len(content)), 1 << chance.randrange(7)
        flipped = content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]
        yield CHANGED, partial(Path.write_bytes, data=flipped)
    if content[-1:] != b"\n":
        yield CHANGED, partial(Path.write_bytes, data=content[:-1])


def test_verify_finds_what_is_listed(whole: Attacked, tmp_path: Path) -> None:
    seed = int(os.environ.get("RETENTION_ATTACK", "1"))
    chance, planted, found, missed = random.Random(seed), 0, 0, []
    for path, text in described(whole):
        kind = next(kind for kind in KINDS if re.search(kind.pattern, text))
        for number, (damage, plant) in enumerate(damages(path, chance)):
            planted += 1
            if damage not in kind.found or (planted + number) % EVERY:
                continue
            attacked = Attacked(tmp_path / str(planted))
            shutil.copytree(whole.folder, attacked.folder, symlinks=True)
            plant(attacked.folder / path.relative_to(whole.folder))
            verdict = attacked.verdict()
            # A lost record of a digest cannot be compared; the file is named.
            found += verdict != "ok"
            if verdict == "ok":
                missed.append(f"{kind.name}: {path.name} {damage}")
            shutil.rmtree(attacked.folder)
    print(f"{whole.folder.name}: {found} damages found, seed {seed}")
    assert not missed, "\n".join(missed)
    assert found > 0
