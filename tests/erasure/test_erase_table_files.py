"""Erasures of rows beside torn, foreign and unreadable files in a table's directory: said, unfinished, nothing lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.erasure.test_erase_tables import BOB, EVE, World, lived_in

Plant = Callable[[Path, Path], Path]


def _data_file(place: Path) -> Path:
    """A file with rows of the person."""
    return next(
        file for file in sorted(place.glob("*.parquet")) if EVE.encode() in file.read_bytes()
    )


def _torn(place: Path, _: Path) -> Path:
    torn = place / "part-torn.parquet"
    torn.write_bytes(_data_file(place).read_bytes()[:-40])
    return torn


def _no_parquet(place: Path, _: Path) -> Path:
    other = place / "notes.parquet"
    other.write_text(f"see {EVE}")
    return other


def _text(place: Path, _: Path) -> Path:
    note = place / "about" / "notes.txt"
    note.parent.mkdir()
    note.write_text(f"see {EVE}")
    return note


def _link(place: Path, elsewhere: Path) -> Path:
    shutil.copy(_data_file(place), elsewhere / "copy.parquet")
    link = place / "linked.parquet"
    link.symlink_to(elsewhere / "copy.parquet")
    return link


def _linked_directory(place: Path, elsewhere: Path) -> Path:
    shutil.copy(_data_file(place), elsewhere / "copy.parquet")
    (place / "linked").symlink_to(elsewhere)
    return elsewhere / "copy.parquet"


def _link_to_nowhere(place: Path, elsewhere: Path) -> Path:
    link = place / "gone.parquet"
    link.symlink_to(elsewhere / "gone.parquet")
    return link


def _link_to_itself(place: Path, _: Path) -> Path:
    link = place / "loop.parquet"
    link.symlink_to(link)
    return link


IN_THE_WAY: dict[str, Plant] = {
    "a torn file": _torn,
    "a file that is no Parquet": _no_parquet,
    "a text": _text,
    "a link to a file": _link,
    "a link to a directory": _linked_directory,
    "a link to nowhere": _link_to_nowhere,
    "a link to itself": _link_to_itself,
}


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_a_file_in_the_way_keeps_the_erasure_unfinished_and_stays(
    tmp_path: Path, name: str
) -> None:
    world = lived_in(tmp_path / "world")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    planted = IN_THE_WAY[name](Path(world.location), elsewhere)
    report = world.table.erase({"user": EVE}, reason="request 7").apply()
    assert world.users() == [BOB] * 27
    assert not report.is_done
    world.clean()
    [report] = world.table.resume_erasures()
    assert not report.is_done
    named = {trace.location for trace in report.traces} | set(report.record.unread)
    assert named == {str(planted)}
    assert str(planted) in repr(report)
    assert os.path.lexists(planted)
    planted.unlink()
    [report] = world.table.resume_erasures()
    assert report.is_done, report


def _pipe(place: Path) -> None:
    os.mkfifo(place / "pipe.parquet")


def _other_columns(place: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), place / "other.parquet")


def _empty(place: Path) -> None:
    (place / "empty.parquet").write_bytes(b"")


def _directory(place: Path) -> None:
    (place / "folder.parquet").mkdir()


@pytest.mark.parametrize("plant", [_pipe, _other_columns, _empty, _directory])
def test_what_has_nothing_of_the_person_is_in_nobodys_way(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    world = lived_in(tmp_path)
    plant(Path(world.location))
    before = sorted(path.name for path in Path(world.location).iterdir())
    world.table.erase({"user": EVE}, reason="request 7").apply()
    assert set(before) <= {path.name for path in Path(world.location).iterdir()}
    world.clean()
    [report] = world.table.resume_erasures()
    assert report.is_done, report


ERASE = """
import json, sys
from retention.api.warehouse import open_warehouse
table = open_warehouse(sys.argv[1], engine="local").table("events")
reports = table.resume_erasures() or [table.erase({"user": sys.argv[2]}, reason="request 7").apply()]
print(json.dumps({"done": reports[0].is_done, "unread": list(reports[0].record.unread)}))
"""


def test_a_file_without_permission_keeps_the_erasure_unfinished(tmp_path: Path) -> None:
    """The erasing process lacks the right of root to read everything."""
    if shutil.which("setpriv") is None or os.geteuid():
        pytest.skip("nobody here can give up rights")
    world = lived_in(tmp_path)
    secret = Path(world.location, "part-secret.parquet")
    shutil.copy(_data_file(Path(world.location)), secret)
    secret.chmod(0)
    rights = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    erase = [*rights, sys.executable, "-c", ERASE, str(tmp_path / "retention.yaml"), EVE]
    for _ in range(2):
        done = subprocess.run(erase, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert result["done"] is False
        assert str(secret) in result["unread"]
        world.clean()
    assert world.users() == [BOB] * 27
    assert secret.exists()
    secret.unlink()
    [report] = world.table.resume_erasures()
    assert report.is_done, report


def test_change_data_of_the_owner_is_listed_until_he_deletes_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    table = DeltaTable(world.location)
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    DeltaTable(world.location).update(updates={"user": f"'{EVE}'"}, predicate="id = 11")
    changes = list(Path(world.location, "_change_data").glob("*.parquet"))
    assert changes
    report = world.table.erase({"user": EVE}, reason="request 7").apply()
    assert world.users() == [BOB] * 29
    assert {str(path) for path in changes} <= {trace.location for trace in report.traces}
    assert set(Path(world.location, "_change_data").glob("*.parquet")) == set(changes)
    world.clean()
    [report] = world.table.resume_erasures()
    assert report.is_done == (not list(Path(world.location, "_change_data").glob("*.parquet")))
    for path in changes:
        path.unlink(missing_ok=True)
    reports = world.table.resume_erasures() or world.table.erasures()
    assert all(each.is_done for each in reports)
    assert world.left() == set()
