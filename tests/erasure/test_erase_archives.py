"""Erasures in archives: what was erased is in no copy, and a restore never brings it back."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.api.warehouse import open_warehouse
from retention.apply import archive_erasure, erasure_run
from retention.apply.reclaim.archived import delete_copies, spent_copies
from retention.core.units import SECOND
from retention.datafile.parquet import write_messages
from retention.errors import (
    DamagedError,
    RefusedError,
    RetentionError,
    UsageError,
)
from retention.rules.holds import LegalHolds
from retention.storage.checksum import with_checksum
from retention.storage.crash_points import Step
from tests.erasure.test_erase import EVE, STORE, World
from tests.support.command_line import invoke
from tests.support.kills import killed_at


class Archived(World):
    """A stream whose runs archived messages of a person; it has them still, in other files."""

    def __init__(self, folder: Path, store: str = "parquet", **settings: Any) -> None:
        super().__init__(folder, store, **{"archive": "kept", "segment_span": "1h", **settings})
        for _ in range(3):
            self.publish(3)
        self.stream.purge(EVE, keep=7).apply()
        self.stream.purge("orders.>", keep=12).apply()

    @property
    def table(self) -> Path:
        """The archive of the stream's table."""
        [directory] = (self.folder / "kept" / "ORDERS").iterdir()
        return directory

    def copies(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.table).as_posix(): path.read_bytes()
            for path in self.table.rglob("*")
            if path.is_file()
        }

    def archived_seqs(self) -> list[int]:
        """The sequences in the archive, by a stranger's reading."""
        copies = self.table.glob("messages/**/*.parquet")
        return sorted(seq for path in copies for seq in pq.read_table(path)["seq"].to_pylist())

    def erase(self) -> Any:
        return self.stream.erase(EVE, reason="request 7").apply()

    def retention(self, *arguments: str) -> Any:
        return invoke(["--config", str(self.folder / "retention.yaml"), *arguments])


@STORE
def test_no_copy_has_what_was_erased(tmp_path: Path, store: str) -> None:
    world = Archived(tmp_path, store)
    in_archive = {path for path, _ in world.left() if path.startswith("kept/")}
    assert len(in_archive) >= 2
    planned = world.stream.erase(EVE, reason="request 7")
    assert f"files of archives: replaces or deletes {len(in_archive)} (" in repr(planned)
    report = planned.apply()
    assert report.is_done, report
    assert world.left() == []
    assert len(report.record.archived) == planned.plan.archived_files == len(in_archive)
    assert len(report.record.archive_records) == 1
    restored = world.stream.restore()
    assert restored.messages > 0
    assert world.subjects() == ["orders.bob"] * 9
    assert world.left() == []
    assert world.stream.verify(archive=True).damages == ()
    new = world.warehouse.new_stream("BACK")
    world.stream.restore(into=new)
    assert world.left() == []


def test_an_erasure_by_sequence_takes_only_what_it_names(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    before = world.archived_seqs()
    assert {1, 3} <= set(before)
    assert world.stream.delete(1, 3, erase=True).apply().is_done
    assert world.archived_seqs() == [seq for seq in before if seq not in {1, 3}]
    world.stream.restore()
    everything = [row["seq"] for rows in world.stream.messages() for row in rows.to_pylist()]
    assert everything == [2, *range(4, 19)]


def test_a_run_of_an_erasure_archives_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, "delta", archive="kept")
    world.publish(3)
    assert world.stream.erase(EVE, reason="request 7").apply().is_done
    assert not (tmp_path / "kept").exists()


def test_two_erasures_one_after_the_other(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    assert world.stream.erase(seqs=[1], reason="request 1").apply().is_done
    assert world.stream.erase(seqs=[2], reason="request 2").apply().is_done
    assert world.erase().is_done
    names = sorted(path.name for path in (world.table / "manifests").glob("erasure-*"))
    documents = [json.loads((world.table / "manifests" / name).read_text()) for name in names]
    followed = {link for document in documents for link in document["after"]}
    ends = [name for name in names if name.removesuffix(".json").rpartition("-")[2] not in followed]
    assert (len(names), len(ends)) == (3, 1)
    assert world.stream.verify(archive=True).damages == ()
    world.stream.restore()
    assert world.left() == []
    # A manifest from before all of them cannot hide a copy.
    first = min(
        set((world.table / "manifests").iterdir())
        - set((world.table / "manifests").glob("erasure-*"))
    )
    world.stream.restore(str(first), into=world.warehouse.new_stream("OLD"))
    assert world.left() == []


def test_a_legal_hold_wins_in_an_archive(tmp_path: Path) -> None:
    world = Archived(tmp_path, grace="0s")
    world.warehouse.reclaim().apply()
    before = world.copies()
    hold = world.warehouse.hold("ORDERS", subject=EVE, to_seq=1, reason="case 12", owner="J. Doe")
    with pytest.raises(RefusedError, match=f"{hold.id} of J. Doe .case 12. keeps messages"):
        world.stream.erase(EVE, reason="request 7")
    assert world.copies() == before
    world.warehouse.release_hold(hold.id, reason="closed")
    assert world.erase().is_done
    assert world.left() == []


STEPS = (Step.ARCHIVE_REWRITTEN, Step.ARCHIVE_ERASURE_TOLD, Step.ARCHIVE_ERASED)


@STORE
@pytest.mark.parametrize("step", STEPS)
def test_an_erasure_killed_in_an_archive_ends_the_same(
    tmp_path: Path, store: str, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Archived(tmp_path, store)

    with killed_at(step):
        world.erase()
    monkeypatch.setattr("retention.apply.erasure_run.finish_erasures", lambda *_: None)
    with pytest.raises(RefusedError, match="is unfinished, so the archive may still have"):
        world.stream.restore()
    monkeypatch.undo()
    [report] = world.stream.resume_erasures()
    assert report.is_done, report
    assert world.left() == []
    documents = list((world.table / "manifests").glob("erasure-*"))
    assert [str(path) for path in documents] == report.record.archive_records
    world.stream.restore()
    assert world.subjects() == ["orders.bob"] * 9
    assert world.stream.verify(archive=True).damages == ()


def test_an_absent_archive_keeps_the_erasure_unfinished(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    away = tmp_path.with_name(f"{tmp_path.name}-away")
    (tmp_path / "kept").rename(away)
    (tmp_path / "kept").mkdir()
    report = world.erase()
    assert not report.is_done
    assert "lacks 2 manifests that runs of ORDERS wrote there: it is not mounted" in repr(report)
    assert "1 archive out of reach" in world.retention("erase", "--status").output
    done = world.retention("erase", "ORDERS", "--resume")
    assert done.exit_code == 6
    assert "and with --archive-gone PLACE if it no longer exists" in done.stderr
    (tmp_path / "kept").rmdir()
    shutil.copytree(away, tmp_path / "kept")
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert world.left() == []


def test_an_archive_that_came_back_is_searched_for_its_own_strings(tmp_path: Path) -> None:
    """Strings that only the archive has are not in the needles of the first survey."""
    world = Archived(tmp_path, grace="0s")
    world.warehouse.reclaim().apply()
    away = tmp_path.with_name(f"{tmp_path.name}-away")
    (tmp_path / "kept").rename(away)
    assert not world.erase().is_done
    away.rename(tmp_path / "kept")
    note = tmp_path / "note.txt"
    note.write_text("payload-8c1e5a7733d0 0")
    [report] = world.stream.resume_erasures()
    assert [trace.location for trace in report.traces] == [str(note)]
    note.unlink()
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert world.left() == []


def test_an_archive_that_no_longer_exists_is_said_to_be_gone(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    shutil.rmtree(tmp_path / "kept")
    assert not world.erase().is_done
    with pytest.raises(UsageError, match=r"elsewhere is no archive of it"):
        world.stream.resume_erasures(archives_gone=["elsewhere"])
    place = str(tmp_path / "kept")
    done = world.retention("erase", "ORDERS", "--resume", "--archive-gone", place)
    assert done.exit_code == 0, done.stderr
    assert f"{place}: this archive no longer exists, as was said" in done.output


def test_a_moved_archive_is_found_where_the_configuration_has_it(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    (tmp_path / "kept").rename(tmp_path / "moved")
    config = json.loads((tmp_path / "retention.yaml").read_text())
    config["streams"][0]["archive"] = "moved"
    (tmp_path / "retention.yaml").write_text(json.dumps(config))
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=world.clock)
    assert warehouse.stream("ORDERS").erase(EVE, reason="request 7").apply().is_done
    assert world.left() == []


def test_an_archive_that_the_configuration_no_longer_names_is_emptied(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    config = json.loads((tmp_path / "retention.yaml").read_text())
    del config["streams"][0]["archive"]
    (tmp_path / "retention.yaml").write_text(json.dumps(config))
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=world.clock)
    assert warehouse.stream("ORDERS").erase(EVE, reason="request 7").apply().is_done
    assert world.left() == []


def test_other_streams_and_warehouses_in_one_archive_are_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "shared"
    worlds = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        worlds.append(Archived(tmp_path / name, archive=str(place)))
    shutil.copytree(place / "ORDERS", place / "BILLS")
    [theirs] = set((place / "ORDERS").iterdir()) - {
        path
        for path in (place / "ORDERS").iterdir()
        if worlds[0].stream.opened.store.snapshot().table_id in path.name
    }
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    before |= {path: path.read_bytes() for path in (place / "BILLS").rglob("*") if path.is_file()}
    assert worlds[0].erase().is_done
    assert {path: path.read_bytes() for path in before} == before
    assert worlds[1].stream.restore().messages > 0


def test_the_archive_of_an_earlier_table_is_emptied_by_subject_alone(tmp_path: Path) -> None:
    """After a drop, sequences begin anew: sequence 2 of the earlier table is another message."""
    world = Archived(tmp_path, grace="0s")
    world.stream.drop().apply()
    world.warehouse.reclaim().apply()
    world.stream = world.warehouse.new_stream("ORDERS")
    world.publish(2)
    tables = sorted((tmp_path / "kept" / "ORDERS").iterdir())
    before = {path: path.read_bytes() for path in tables[0].rglob("*") if path.is_file()}
    assert world.stream.erase(seqs=[2], reason="request 1").apply().is_done
    assert {path: path.read_bytes() for path in before if path.exists()} == before
    assert world.erase().is_done
    assert [path for path, _ in world.left() if path.startswith("kept/")] == []


def _torn(world: Archived) -> Path:
    [copy, *_] = sorted(world.table.glob("messages/**/*.parquet"))
    other = copy.with_name(f"{'0' * 32}.parquet")
    other.write_bytes(copy.read_bytes()[:-20])
    return other


def _unnamed(world: Archived) -> Path:
    [copy, *_] = sorted(world.table.glob("messages/**/*.parquet"))
    other = copy.with_name(f"{'1' * 32}.parquet")
    shutil.copy(copy, other)
    return other


@pytest.mark.parametrize("make", [_torn, _unnamed])
def test_copies_of_a_killed_run_are_deleted(
    tmp_path: Path, make: Callable[[Archived], Path]
) -> None:
    world = Archived(tmp_path)
    left = make(world)
    assert world.erase().is_done
    assert not left.exists()
    assert world.left() == []


def test_foreign_files_in_an_archive_are_never_changed(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    foreign = world.table / "messages" / "mine.parquet"
    pq.write_table(pa.table({"a": [1]}), foreign)
    note = world.table / "note.txt"
    note.write_text(f"about {EVE}")
    content = foreign.read_bytes()
    report = world.erase()
    assert [trace.location for trace in report.traces] == [str(note)] * len(report.traces)
    assert note.read_text() == f"about {EVE}"
    assert foreign.read_bytes() == content
    note.unlink()
    assert world.stream.resume_erasures()[0].is_done


def test_a_copy_that_is_not_what_was_copied_is_kept(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    for path in world.table.glob("messages/**/*.parquet"):
        rows = pq.read_table(path)
        pq.write_table(rows, path, compression="none")
    before = world.copies()
    report = world.erase()
    assert not report.is_done
    assert "this archive still has messages of it" in repr(report)
    assert "its SHA-256 differs from the manifest's" in repr(report)
    assert {name: world.copies()[name] for name in before} == before


def test_a_missing_copy_may_be_elsewhere(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    [copy, *_] = sorted(world.table.glob("messages/**/*.parquet"))
    content = copy.read_bytes()
    copy.unlink()
    report = world.erase()
    assert not report.is_done
    assert f"1 copy is missing, such as {copy}" in repr(report)
    copy.write_bytes(content)
    assert world.stream.resume_erasures()[0].is_done
    assert world.left() == []


def test_an_archive_that_cannot_be_written_keeps_it_unfinished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Archived(tmp_path)
    before = world.copies()
    write = write_messages

    def read_only(location: str, batches: Any) -> str:
        if "/kept/" in location:
            raise OSError(30, "Read-only file system", location)
        return write(location, batches)

    monkeypatch.setattr(archive_erasure, "write_messages", read_only)
    report = world.erase()
    assert not report.is_done
    assert "this archive still has messages of it: [Errno 30] Read-only" in repr(report)
    assert world.copies() == before
    monkeypatch.undo()
    assert world.stream.resume_erasures()[0].is_done
    assert world.left() == []


def test_an_archive_that_is_put_back_from_a_backup_is_refused_until_erased_again(
    tmp_path: Path,
) -> None:
    world = Archived(tmp_path)
    backup = tmp_path.with_name(f"{tmp_path.name}-backup")
    shutil.copytree(tmp_path / "kept", backup)
    assert world.erase().is_done
    shutil.rmtree(tmp_path / "kept")
    shutil.copytree(backup, tmp_path / "kept")
    with pytest.raises(RefusedError, match="as after a restore of the archive from a backup"):
        world.stream.restore()
    with pytest.raises(RefusedError, match="as after a restore of the archive from a backup"):
        world.stream.restore(into=world.warehouse.new_stream("BACK"))
    [damage] = world.stream.verify().damages
    assert damage.detail.startswith("the archive lacks this record of erasure")
    assert world.erase().is_done
    assert world.left() == []
    world.stream.restore()
    assert world.subjects() == ["orders.bob"] * 9
    assert world.stream.verify(archive=True).damages == ()


def test_a_lost_record_of_an_erasure_is_named(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    world.stream.erase(seqs=[1], reason="request 1").apply()
    [first] = (world.table / "manifests").glob("erasure-*")
    world.stream.erase(seqs=[2], reason="request 2").apply()
    content = first.read_text()
    first.unlink()
    with pytest.raises((DamagedError, RefusedError)):
        world.stream.restore()
    assert world.stream.verify().damages
    first.write_text(content.replace('"replaced"', '"Replaced"'))
    with pytest.raises(
        DamagedError, match="this record of an erasure in an archive cannot be read"
    ):
        world.stream.restore()
    newer = json.loads(content)
    del newer["check"]
    first.write_text(json.dumps(with_checksum(newer | {"format_version": 4})))
    with pytest.raises(RetentionError):
        world.stream.restore()
    first.write_text(content)
    assert world.stream.restore().messages


def test_reclaim_deletes_what_erasures_put_in_the_place_of_old_copies(tmp_path: Path) -> None:
    world = Archived(tmp_path, archive_keep="1s", grace="0s")
    assert world.erase().is_done
    assert world.archived_seqs()
    for path in (world.table / "manifests").iterdir():
        os.utime(path, (0, 0))
    world.now += 60 * SECOND
    opened = world.stream.opened
    [spent] = spent_copies(opened, LegalHolds(()), world.now)
    delete_copies(spent, world.now)
    assert world.archived_seqs() == []
    assert world.stream.verify(archive=True).damages == ()


def test_a_step_left_out_in_an_archive_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Archived(tmp_path)
    monkeypatch.setattr(erasure_run, "erase_in_archives", lambda *_: [])
    report = world.erase()
    assert {trace.location.split("/kept/")[0] for trace in report.traces} == {str(tmp_path)}
    monkeypatch.undo()
    assert world.stream.resume_erasures()[0].is_done
    assert world.left() == []


def test_an_earlier_format_of_manifests_is_emptied_as_well(tmp_path: Path) -> None:
    """Releases before 0050 named no predecessor, and no manifest by its content."""
    world = Archived(tmp_path)
    for path in (world.table / "manifests").iterdir():
        fields = json.loads(path.read_text())
        for name in ("check", "previous", "writer"):
            fields.pop(name, None)
        fields["format_version"] = 1
        old = path.with_name(f"{fields['plan_id']}.json")
        old.write_text(json.dumps(with_checksum(fields)))
        path.unlink()
    report = world.erase()
    assert "lacks 2 manifests" in repr(report)
    assert world.left() == []


@pytest.mark.parametrize(
    ("step", "nth"),
    [
        (Step.NEEDLES_WRITTEN, 1),
        (Step.ERASURE_RECORDED, 2),
        (Step.HISTORY_DONE, 1),
        (Step.ERASED_DIGESTS_DELETED, 1),
        (Step.ARCHIVE_REWRITTEN, 2),
        (Step.ERASURE_REPORTED, 1),
        (Step.NEEDLES_DELETED, 1),
    ],
)
def test_an_erasure_with_an_archive_ends_the_same_after_a_kill(
    tmp_path: Path, step: Step, nth: int
) -> None:
    world = Archived(tmp_path)
    with killed_at(step, nth):
        world.erase()
    world.erase()
    assert world.stream.erasures()[-1].is_done
    assert world.left() == []
    world.stream.restore()
    assert world.subjects() == ["orders.bob"] * 9


def test_a_copied_warehouse_leaves_the_archive_of_the_original_alone(tmp_path: Path) -> None:
    (tmp_path / "prod").mkdir()
    world = Archived(tmp_path / "prod")
    shutil.copytree(tmp_path / "prod", tmp_path / "copy", symlinks=True)
    before = world.copies()
    place = tmp_path / "copy" / "retention.yaml"
    copied = open_warehouse(place, engine="local", clock=world.clock)
    assert copied.stream("ORDERS").erase(EVE, reason="request 7").apply().is_done
    assert world.copies() == before
    shutil.rmtree(tmp_path / "copy")
    shutil.copytree(tmp_path / "prod", tmp_path / "copy", symlinks=True)
    config = json.loads(place.read_text())
    config["streams"][0]["archive"] = str(tmp_path / "prod" / "kept")
    place.write_text(json.dumps(config))
    sharing = open_warehouse(place, engine="local", clock=world.clock)
    report = sharing.stream("ORDERS").erase(EVE, reason="request 7").apply()
    assert not report.is_done
    assert "is a copy of" in repr(report)
    assert world.copies() == before


def test_a_changed_bit_in_a_copy_is_found_on_request(tmp_path: Path) -> None:
    world = Archived(tmp_path)
    [copy, *_] = sorted(world.table.glob("messages/**/*.parquet"))
    content = copy.read_bytes()
    copy.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    assert world.stream.verify().damages == ()
    [damage] = world.stream.verify(archive=True).damages
    assert (damage.subject, damage.check) == (str(copy), "archive")
    assert "its SHA-256 differs from the manifest's" in damage.detail
    assert damage.remedy == "restore it from a copy of the archive"
    assert world.retention("verify", "--archive").exit_code == 6
    copy.write_bytes(content)
    assert world.stream.verify(archive=True).damages == ()
