"""Each damage planted in an archive is found, and its remedy, carried out here, makes the archive whole again."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply import execute
from retention.apply.archive import LeavingFiles, archive
from retention.apply.reclaim.archived import delete_copies, spent_copies
from retention.core.units import DAY
from retention.rules.holds import LegalHolds
from retention.storage.checksum import verified, with_checksum
from retention.stores.archive_manifest import link_of_fields
from retention.verify.finding import Verification
from tests.contract.test_earlier_warehouses import FIXTURES
from tests.erasure.test_erase_archives import Archived
from tests.retention.verify.test_damages import flip, swap
from tests.support.sandboxes import Commands


@dataclass(frozen=True)
class Kept:
    """A stream whose archive has copies of a purge, of another one after two erasures, and records of both erasures."""

    world: Archived
    backup: Path

    @property
    def table(self) -> Path:
        return self.world.table

    @property
    def copies(self) -> list[Path]:
        return sorted(self.table.glob("messages/**/*.parquet"))

    @property
    def manifests(self) -> list[Path]:
        """The manifests, the first one of the chain first."""
        documents = self.table.glob("manifests/*.json")
        there = [path for path in documents if not path.name.startswith("erasure-")]
        by_link = {json.loads(path.read_text())["previous"]: path for path in there}
        chain, link = list[Path](), None
        while link in by_link:
            chain.append(by_link[link])
            link = by_link[link].stem.rpartition("-")[2]
        return chain

    @property
    def erasures(self) -> list[Path]:
        """The records of erasures, the first one first."""
        there = self.table.glob("manifests/erasure-*.json")
        return sorted(there, key=lambda path: len(json.loads(path.read_text())["after"]))

    @property
    def warehouse(self) -> Warehouse:
        place = self.world.folder / "retention.yaml"
        return open_warehouse(place, engine="local", clock=self.world.clock)

    def verify(self) -> Verification:
        return self.warehouse.stream("ORDERS").verify(archive=True)

    def restored(self, place: Path) -> None:
        """Put a file of the archive, or a directory, back from a copy of the archive."""
        source = self.backup / place.relative_to(self.world.folder)
        if source.is_dir():
            shutil.copytree(source, place, dirs_exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place)


def forge(place: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change a document, with the checksum and the name of its new content, as one who knows the format would."""
    fields = verified(json.loads(place.read_text()))
    change(fields)
    forged = place.with_name(f"{place.stem.rpartition('-')[0]}-{link_of_fields(fields)}.json")
    forged.write_text(json.dumps(with_checksum(fields), sort_keys=True))
    return forged


def replace_by_forgery(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    forge(place, change)
    place.unlink()


def edit(place: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a document, with the checksum of its new content, under its name."""
    fields = verified(json.loads(place.read_text()))
    change(fields)
    place.write_text(json.dumps(with_checksum(fields), sort_keys=True))


def other_rules(fields: dict[str, Any]) -> None:
    fields["by_rule"] = {"max_age": 1}


def other_stream(fields: dict[str, Any]) -> None:
    fields["origin"]["stream"] = "BILLS"
    fields["previous"] = None


def lose_a_copy_by_a_forged_record(at: Kept) -> None:
    """Say that an erasure left nothing of a copy, and delete the copy."""
    manifest = json.loads(at.manifests[-1].read_text())["files"][0]
    gone = {"path": manifest["path"], "sha256": manifest["sha256"], "by": None}
    forge(at.erasures[-1], lambda fields: fields.update(replaced=[gone]))
    (at.table / "messages" / manifest["path"]).unlink()


def flip_all(at: Kept) -> None:
    for copy in at.copies:
        flip(copy, 40)


def delete_manifests(at: Kept) -> None:
    for manifest in at.manifests:
        manifest.unlink()


def return_an_erased_copy(at: Kept) -> None:
    replaced = json.loads(at.erasures[0].read_text())["replaced"][0]["path"]
    place = at.table / "messages" / replaced
    shutil.copy2(at.backup / "before" / replaced, place)


def put_back_a_backup(at: Kept) -> None:
    """Put back the copies from before the erasures, and take their records and copies away."""
    for record in at.erasures:
        for replaced in json.loads(record.read_text())["replaced"]:
            (at.table / "messages" / replaced["by"]["path"]).unlink(missing_ok=True)
        record.unlink()
    shutil.copytree(at.backup / "before", at.table / "messages", dirs_exist_ok=True)


COPY = "restore it from a copy of the archive"
ERASE = "erase again, with the same request"
UNKNOWN = "restore the erasure's own record from a copy of the warehouse; if there was no such erasure, delete this"
MOVE = "move it out of this archive"
DELETE = "delete it if no run is at work"
Plant = Callable[[Kept], object]
DAMAGES: dict[str, tuple[str, str, Plant]] = {
    "a bit of a copy is flipped": ("its SHA-256 differs", COPY, lambda at: flip(at.copies[0], 40)),
    "a bit of a copy that an erasure wrote is flipped": (
        "its SHA-256 differs", COPY, flip_all,
    ),
    "a copy is cut off": (
        "instead of", COPY, lambda at: at.copies[0].write_bytes(at.copies[0].read_bytes()[:-1]),
    ),
    "a copy is empty": ("0 bytes instead of", COPY, lambda at: at.copies[-1].write_bytes(b"")),
    "two copies are swapped": (
        "its SHA-256 differs|instead of", COPY, lambda at: swap(at.copies[0], at.copies[-1]),
    ),
    "a copy has other bytes of its length": (
        "its SHA-256 differs", COPY, lambda at: at.copies[0].write_bytes(bytes(at.copies[0].stat().st_size)),
    ),
    "a copy is missing": ("the copy is missing", COPY, lambda at: at.copies[0].unlink()),
    "all copies are missing": ("the copy is missing", COPY, lambda at: shutil.rmtree(at.table / "messages")),
    "a bit of a manifest is flipped": (
        "cannot be read", "restore it from a copy", lambda at: flip(at.manifests[0], 30),
    ),
    "a manifest is empty": ("cannot be read", "restore it from a copy", lambda at: at.manifests[1].write_bytes(b"")),
    "a manifest is edited": (
        "its name is that of another content", "restore it from a copy",
        lambda at: edit(at.manifests[1], other_rules),
    ),
    "the newest manifest is forged": (
        "this manifest of the archive is missing", COPY,
        lambda at: replace_by_forgery(at.manifests[-1], other_rules),
    ),
    "the first manifest is forged": (
        "this manifest of the archive is missing", COPY,
        lambda at: replace_by_forgery(at.manifests[0], other_rules),
    ),
    "the newest manifest is missing": (
        "this manifest of the archive is missing", COPY, lambda at: at.manifests[-1].unlink(),
    ),
    "the first manifest is missing": (
        "this manifest of the archive is missing", COPY, lambda at: at.manifests[0].unlink(),
    ),
    "all manifests are missing": (
        "this manifest of the archive is missing", COPY, delete_manifests,
    ),
    "the archive is missing": (
        "this manifest of the archive is missing", COPY, lambda at: shutil.rmtree(at.table.parent),
    ),
    "the newest record of an erasure is missing": (
        "lacks this record of erasure", COPY, lambda at: at.erasures[-1].unlink(),
    ),
    "the first record of an erasure is missing": (
        "lacks this record of erasure", COPY, lambda at: at.erasures[0].unlink(),
    ),
    "a bit of a record of an erasure is flipped": ("cannot be read", COPY, lambda at: flip(at.erasures[0], 30)),
    "a record of an erasure is edited": (
        "its name is that of another content", COPY,
        lambda at: edit(at.erasures[1], lambda fields: fields.update(at_ns=1)),
    ),
    "a record of an erasure is forged": (
        "lacks this record of erasure", COPY,
        lambda at: replace_by_forgery(at.erasures[-1], lambda fields: fields.update(at_ns=1)),
    ),
    "a forged record takes a copy away": (
        "no erasure of this warehouse wrote", UNKNOWN, lose_a_copy_by_a_forged_record,
    ),
    "a copy that an erasure replaced is back": ("an erasure replaced this copy", ERASE, return_an_erased_copy),
    "a manifest of another stream": (
        "it is of another table: BILLS", MOVE, lambda at: forge(at.manifests[0], other_stream),
    ),
    "a record of another stream's erasure": (
        "it is of another table: BILLS", MOVE,
        lambda at: forge(at.erasures[0], lambda fields: fields["origin"].update(stream="BILLS")),
    ),
    "the archive is that of a backup from before the erasures": (
        "lacks this record of erasure", ERASE, put_back_a_backup,
    ),
    "a file that nobody names": (
        "no manifest names this file", DELETE,
        lambda at: shutil.copy(at.copies[0], at.copies[0].with_name("0.parquet")),
    ),
    "a text that nobody names": (
        "no manifest names this file", DELETE,
        lambda at: (at.table / "messages" / "note.txt").write_text("a note"),
    ),
}  # fmt: skip
"""The damage → a part of what is said of it, its remedy, and how it is planted; listed before any is planted."""


@pytest.fixture(scope="module", params=["delta", "parquet"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "world").mkdir()
    kept = Kept(Archived(folder / "world", request.param), folder / "backup")
    before = folder / "before"
    shutil.copytree(kept.table / "messages", before)
    kept.world.stream.erase(seqs=[1], reason="request 1").apply()
    kept.world.stream.erase(seqs=[2], reason="request 2").apply()
    kept.world.publish(3)
    kept.world.stream.purge("orders.>", keep=6).apply()
    result = kept.verify()
    assert (result.verdict, result.damages, result.unverified) == ("ok", (), ())
    assert (len(kept.manifests), len(kept.erasures), len(kept.copies) >= 3) == (3, 2, True)
    shutil.copytree(kept.world.folder, kept.backup, symlinks=True)
    shutil.move(before, kept.backup / "before")
    return kept


@pytest.fixture
def kept(whole: Kept) -> Kept:
    """The stream as it was, at the same place: elsewhere it would be a copy of the original."""
    shutil.rmtree(whole.world.folder)
    shutil.copytree(whole.backup, whole.world.folder, symlinks=True)
    shutil.rmtree(whole.world.folder / "before")
    return whole


def carry_out(kept: Kept, remedy: str, subject: str) -> None:
    """Do what a remedy says."""
    place = Path(subject)
    if remedy.startswith(ERASE):
        kept.warehouse.stream("ORDERS").erase(seqs=[1], reason="request 1").apply()
        kept.warehouse.stream("ORDERS").erase(seqs=[2], reason="request 2").apply()
    elif remedy.startswith(UNKNOWN):
        place.unlink()
        kept.restored(kept.table / "messages")
    elif remedy in (MOVE, DELETE):
        place.unlink()
    else:
        assert remedy.startswith("restore it from a copy"), remedy
        kept.restored(place)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_of_an_archive_is_found_and_its_remedy_mends_it(kept: Kept, damage: str) -> None:
    said, wanted, plant = DAMAGES[damage]
    table = kept.table
    plant(kept)
    result = kept.verify()
    found = [(each.detail, each.remedy, each.subject) for each in result.damages]
    found += [
        (each.reason, each.reason.rpartition("; ")[2], each.subject) for each in result.unverified
    ]
    assert any(
        part in detail and remedy.startswith(wanted)
        for detail, remedy, _ in found
        for part in said.split("|")
    ), found
    for _ in range(4):
        for _, remedy, subject in found:
            carry_out(kept, remedy, subject)
        result = kept.verify()
        found = [(each.detail, each.remedy, each.subject) for each in result.damages]
        if not found:
            break
    assert (result.verdict, result.unverified) == ("ok", ()), found
    assert table.is_dir()
    kept.warehouse.stream("ORDERS").restore()
    back = {
        row["seq"]
        for rows in kept.warehouse.stream("ORDERS").messages()
        for row in rows.to_pylist()
    }
    assert back == set(range(3, 25))


def test_copies_that_lack_messages_of_their_run_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run forgets a file: each copy is as its manifest says, and the history has more messages."""

    def forgetful(opened: Any, leaving: LeavingFiles, *others: Any) -> Any:
        return archive(opened, replace(leaving, files=leaving.files.slice(1)), *others)

    world = Archived(tmp_path)
    world.publish(3)
    monkeypatch.setattr(execute, "archive", forgetful)
    run = world.stream.purge("orders.>", keep=2).apply()
    assert world.stream.verify().verdict == "ok"
    [damage] = world.stream.verify(archive=True).damages
    assert f"of the {run.removed_messages} that run {run.run} removed" in damage.detail
    assert damage.subject.startswith(str(world.table / "manifests"))
    assert world.stream.verify(archive=True, sample="1%").verdict == "ok", "a sample has no counts"


def test_a_lost_manifest_is_found_after_reclaim_deleted_earlier_ones(tmp_path: Path) -> None:
    world = Archived(tmp_path, archive_keep="1d", grace="0s")
    for path in (world.table / "manifests").iterdir():
        os.utime(path, (0, 0))
    world.now += 2 * DAY
    opened = world.stream.opened
    [spent] = spent_copies(opened, LegalHolds(()), world.now)
    delete_copies(spent, world.now)
    assert world.copies().keys() == {"forgotten.json"}
    assert world.stream.verify(archive=True).damages == ()
    world.publish(3)
    world.stream.purge("orders.>", keep=4).apply()
    assert world.stream.verify(archive=True).damages == ()
    [manifest] = (world.table / "manifests").iterdir()
    manifest.unlink()
    [damage] = world.stream.verify().damages
    assert (damage.subject, damage.remedy) == (str(manifest), COPY)


@pytest.fixture
def first(tmp_path: Path) -> Commands:
    """The warehouse of an earlier release, with manifests of the first format."""
    with tarfile.open(FIXTURES / "warehouse-2026-11.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    config = tmp_path / "w" / "retention.yaml"
    config.write_text(config.read_text().replace("    release_share: 90%\n", ""))
    return Commands(tmp_path / "w")


@pytest.mark.parametrize("stream", ["PLAIN", "ORDERS"])
def test_an_archive_of_the_first_format_is_verified(first: Commands, stream: str) -> None:
    [table] = (first.folder / "archive" / stream).iterdir()
    [manifest, *_] = (table / "manifests").iterdir()
    assert json.loads(manifest.read_text())["format_version"] == 1
    assert first.run("verify", stream, "--archive").exit_code == 0
    [copy, *_] = table.glob("messages/**/*.parquet")
    for damaged, said in ((copy, "its SHA-256 differs"), (manifest, "cannot be read")):
        content = damaged.read_bytes()
        flip(damaged, 40)
        done = first.run("verify", stream, "--archive")
        assert (done.exit_code, str(damaged) in done.output, said in done.output) == (6, True, True)
        damaged.unlink()
        done = first.run("verify", stream)
        assert (done.exit_code, str(damaged) in done.output) == (6, True)
        assert "is missing" in done.output
        damaged.write_bytes(content)
        assert first.run("verify", stream, "--archive").exit_code == 0


@pytest.mark.parametrize("stream", ["PLAIN", "ORDERS"])
def test_an_archive_of_the_first_format_is_erased_in_and_restored(
    first: Commands, stream: str
) -> None:
    [table] = (first.folder / "archive" / stream).iterdir()
    rows = [
        row
        for path in table.glob("messages/**/*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    someone = rows[0]["subject"]
    others = {row["seq"] for row in rows if row["subject"] != someone}
    assert others
    erased = first.run("erase", stream, "--subject", someone, "--reason", "request 7", "--yes")
    assert erased.exit_code == 0, erased.output
    left = [
        row["subject"]
        for path in table.glob("messages/**/*.parquet")
        for row in pq.read_table(path).to_pylist()
    ]
    assert someone not in left
    done = first.run("verify", stream, "--archive")
    assert done.exit_code == 0, done.output
    first.json("restore", stream)
    back = first.json("messages", stream)
    assert others <= {message["seq"] for message in back}
    assert someone not in {message["subject"] for message in back}
