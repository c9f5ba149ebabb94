"""An auditor's attack on a table in place: every file of it, and every record, is damaged as `verify` must notice."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from retention.api.warehouse import Warehouse, open_warehouse
from retention.delta.vectors import vector_location
from retention.tables.access import access_of
from retention.tables.records import read_changes
from tests.support.sandboxes import NOW

EVERY = 1 if os.environ.get("RETENTION_ATTACK") else 23
"""Of the damages, `make test` plants every twenty-third; `make long NAME=attack` plants all."""
DELETED, SHORTER, LONGER, FLIPPED = "deleted", "shorter", "longer", "flipped"
RESIZED = frozenset({SHORTER, LONGER})
CHANGED = RESIZED | {FLIPPED}
ALL = CHANGED | {DELETED}
DAY_S = 86_400


@dataclass(frozen=True)
class Kind:
    """A kind of file, and the damages that `verify` must find."""

    name: str
    pattern: str
    found: frozenset[str]
    why: str = ""
    """The reason why it does not find the others."""


KINDS = (
    Kind("live file that a run wrote", r"^LIVE OURS", ALL),
    Kind("live file of others", r"^LIVE", RESIZED | {DELETED}, "its content has no digest of ours"),
    Kind("vector in use", r"^VECTOR", ALL - {LONGER}, "nothing reads what follows the vectors in a file"),
    Kind("vector of an undone run", r"\.bin$", frozenset(), "nothing reads it"),
    Kind("removed file that a run wrote", r"^REMOVED OURS", CHANGED, "VACUUM and reclaim delete removed files"),
    Kind("removed file of others", r"^REMOVED", RESIZED, "both reasons"),
    Kind("file that no standing run needs", r"^events/.*parquet$", frozenset(), "nothing reads it"),
    Kind("log of the table", r"_delta_log/", frozenset(), "Delta has no checksums; it is not ours"),
    Kind("intent", r"\.begun\.json$", ALL),
    Kind("outcome", r"\.done\.json$", CHANGED, "of the newest run: the next run makes it again"),
    Kind("record for undo", r"/changes/", ALL),
    Kind("evidence", r"/evidence/", ALL),
    Kind("secret of the hashes", r"/salt$", ALL),
    Kind("digests of live files", r"^DIGESTS LIVE", ALL),
    Kind("digests of removed files", r"/digests/", CHANGED, "an undo compares rows"),
    Kind("newest pause", r"/pauses/.*NEWEST", CHANGED, "the record before it counts"),
    Kind("earlier pause, lease, or label", r"", frozenset(), "nothing reads it, or it is made again"),
)  # fmt: skip
"""The kinds of files, the first that matches a file first; listed before anything is planted."""


@dataclass(frozen=True)
class Attacked:
    """A warehouse with a table under attack."""

    folder: Path
    evidence: str

    def warehouse(self, age: str = "35d") -> Warehouse:
        table: dict[str, Any] = {"name": "events", "location": "events", "time": "at", "unit": "s"}
        table |= {"max_age": age, "key": ["id"], "evidence": self.evidence}
        file = self.folder / "retention.yaml"
        file.write_text(json.dumps({"warehouse": "warehouse", "tables": [table]}))
        return open_warehouse(file, engine="local", clock=lambda: NOW)

    @property
    def digests(self) -> dict[str, tuple[str, ...]]:
        """Name of each record of digests → the files that it has."""
        found = (self.folder / "warehouse/tables/events/digests").glob("*.json")
        return {file.name: tuple(json.loads(file.read_text())["files"]) for file in found}

    def verdict(self) -> str:
        return self.warehouse().table("events").verify().verdict


def _append(location: Path, first: int, days: list[int], *, vectors: bool) -> None:
    """Append rows with ids from `first`, of which each is some days old."""
    ids = pa.array(range(first, first + len(days)), pa.int64())
    at = pa.array([NOW // 10**9 - DAY_S * age for age in days], pa.int64())
    enabled = {"delta.enableDeletionVectors": str(vectors).lower()}
    rows = pa.table({"id": ids, "at": at})
    write_deltalake(location, rows, mode="append", configuration=enabled)


@pytest.fixture(scope="module", params=["copies", "vectors"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Attacked:
    """A table with passes that dropped and cut files, of which one is undone, and a pause that is over."""
    vectors = request.param == "vectors"
    folder = tmp_path_factory.mktemp(request.param)
    attacked = Attacked(folder, "hashed" if vectors else "keys")
    for first in range(0, 100, 20):
        days = list(range(first, first + 20))
        _append(folder / "events", first, days, vectors=vectors)
    chance = random.Random(1)
    days = [chance.choice((1, 1, 90)) for _ in range(9_000)]
    _append(folder / "events", 100, days, vectors=vectors)
    (folder / "warehouse").mkdir()
    table = attacked.warehouse("85d").table("events")
    table.undo(table.plan().apply().run)
    for age in ("78d", "35d", "25d"):
        attacked.warehouse(age).table("events").plan().apply()
    attacked.warehouse().pause(["events"], reason="a trial")
    attacked.warehouse().resume(["events"], reason="over")
    assert attacked.verdict() == "ok"
    return attacked


def described(attacked: Attacked) -> Iterator[tuple[Path, str]]:
    """Each file, with a text that patterns match: its path, with words for what only the warehouse knows."""
    table = attacked.warehouse().table("events").opened
    snapshot = access_of(table).read(table)
    live = set(snapshot.files["path"].to_pylist())
    adds = snapshot.adds_of(range(snapshot.files.num_rows))
    vectors = [add["deletionVector"] for add in adds if add.get("deletionVector")]
    words = {
        **{Path(vector_location("", vector) or "").name: "VECTOR" for vector in vectors},
        **dict.fromkeys(standing(attacked), "REMOVED"),
        **{name: "DIGESTS LIVE" for name, of in attacked.digests.items() if live & {*of}},
        **dict.fromkeys(live, "LIVE"),
    }
    ours = {name for names in attacked.digests.values() for name in names}
    pauses = attacked.folder / "warehouse/tables/events/_retention/pauses"
    newest_pause = max(pauses.glob("*.json")).name
    for path in sorted(path for path in attacked.folder.rglob("*") if path.is_file()):
        text = path.relative_to(attacked.folder).as_posix().replace(newest_pause, "NEWEST.json")
        known = [words[path.name]] if path.name in words else []
        owner = ["OURS"] if path.name in ours else []
        if path.name != "retention.yaml":
            yield path, " ".join([*known, *owner, text])


def standing(attacked: Attacked) -> set[str]:
    """The files that passes removed which are not undone."""
    table = attacked.warehouse().table("events")
    undone = {getattr(record, "undoes", None) for record in table.runs()}
    return {
        change.before["path"]
        for record in table.runs()
        if record.kind == "apply_table" and record.run not in undone
        for change in read_changes(table.opened, record.run)
        if change.is_whole_or_copied
    }


def damages(content: bytes, chance: random.Random) -> Iterator[tuple[str, bytes | None]]:
    """The damages of a file: what it is, and the content afterwards; None: the file is deleted."""
    yield DELETED, None
    if not content:
        return
    yield SHORTER, b""
    if content[-1:] != b"\n":
        yield SHORTER, content[:-1]
    yield LONGER, content + b"x"
    for _ in range(4):
        at, bit = chance.randrange(len(content)), 1 << chance.randrange(7)
        yield FLIPPED, content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :]


def test_verify_finds_what_is_listed(whole: Attacked, tmp_path: Path) -> None:
    seed = int(os.environ.get("RETENTION_ATTACK", "1"))
    chance, planted, found, missed = random.Random(seed), 0, 0, []
    kinds: set[str] = set()
    for path, text in described(whole):
        kind = next(kind for kind in KINDS if re.search(kind.pattern, text))
        kinds.add(kind.name)
        for damage, content in damages(path.read_bytes(), chance):
            planted += 1
            if damage not in kind.found or planted % EVERY:
                continue
            attacked = Attacked(tmp_path / str(planted), whole.evidence)
            shutil.copytree(whole.folder, attacked.folder, symlinks=True)
            target = attacked.folder / path.relative_to(whole.folder)
            if content is None:
                target.unlink()
            else:
                target.write_bytes(content)
            verdict = attacked.verdict()
            found += verdict != "ok"
            if verdict == "ok":
                missed.append(f"{kind.name}: {path.name} {damage}")
            shutil.rmtree(attacked.folder)
    print(f"{whole.folder.name}: {found} damages found, seed {seed}; kinds: {sorted(kinds)}")
    assert not missed, "\n".join(missed)
    assert found > 0
