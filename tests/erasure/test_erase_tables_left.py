"""Erasures of tables in place beside torn and foreign files, links, change data, and sidecars of checkpoints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.erasure.test_erase_tables import ADDRESS, BOB, EVE, World, lived_in


def _torn(world: World) -> Path:
    whole = next(Path(world.location).glob("*.parquet"))
    place = Path(world.location) / "part-torn.parquet"
    place.write_bytes(whole.read_bytes()[:-30])
    return place


def _no_parquet(world: World) -> Path:
    place = Path(world.location) / "part-odd.parquet"
    place.write_bytes(f"not Parquet, about {EVE}".encode())
    return place


def _link(world: World) -> Path:
    outside = world.folder / "elsewhere"
    outside.mkdir()
    (outside / "note.txt").write_text(f"about {EVE}")
    place = Path(world.location) / "linked"
    place.symlink_to(outside)
    return place


def _dangling(world: World) -> Path:
    place = Path(world.location) / "part-gone.parquet"
    place.symlink_to(world.folder / "nowhere.parquet")
    return place


@pytest.mark.parametrize("make", [_torn, _no_parquet, _link, _dangling])
def test_an_odd_file_in_the_table_keeps_the_erasure_unfinished_and_stays(
    tmp_path: Path, make: Callable[[World], Path]
) -> None:
    world = lived_in(tmp_path)
    odd = make(world)
    content = None if odd.is_symlink() else odd.read_bytes()
    world.table.erase({"user": EVE}, reason="request 7").apply()
    world.clean()
    [report] = world.table.resume_erasures()
    assert not report.is_done
    named = [*(trace.location for trace in report.traces), *report.record.unread]
    assert any(odd.name in location or "elsewhere" in location for location in named), named
    assert odd.is_symlink() if content is None else odd.read_bytes() == content
    assert world.users() == [BOB] * 27
    odd.unlink()
    [report] = world.table.resume_erasures()
    assert report.is_done, report


def test_change_data_of_others_is_listed_until_they_delete_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    table = DeltaTable(world.location)
    table.alter.set_table_properties(
        {"delta.enableChangeDataFeed": "true"}, raise_if_not_exists=False
    )
    DeltaTable(world.location).delete(f"user = '{EVE}' AND id < 5")
    changes = Path(world.location) / "_change_data"
    assert ADDRESS in str([pq.read_table(path).to_pylist() for path in changes.glob("*.parquet")])
    report = world.table.erase({"user": EVE}, reason="request 7").apply()
    assert not report.is_done
    assert any("/_change_data/" in trace.location for trace in report.traces)
    assert list(changes.glob("*.parquet"))
    shutil.rmtree(changes)
    world.clean()
    [report] = world.table.resume_erasures()
    assert report.is_done, report
    assert world.left() == set()


def test_a_sidecar_of_a_checkpoint_is_searched(tmp_path: Path) -> None:
    """A checkpoint of version 2 has its actions in sidecars, with the statistics of files in clear."""
    world = World(tmp_path)
    sidecars = Path(world.location) / "_delta_log" / "_sidecars"
    sidecars.mkdir()
    stats = json.dumps({"numRecords": 1, "minValues": {"user": EVE}})
    row = {"add": {"path": "part-0.parquet", "stats": stats}}
    place = sidecars / "3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"
    pq.write_table(pa.Table.from_pylist([row]), place)
    world.table.erase({"user": EVE}, reason="request 7").apply()
    world.clean()
    [report] = world.table.resume_erasures()
    assert not report.is_done
    assert {trace.location for trace in report.traces} == {str(place)}
    assert place.exists()
    place.unlink()
    [report] = world.table.resume_erasures()
    assert report.is_done, report
    assert world.left() == set()
