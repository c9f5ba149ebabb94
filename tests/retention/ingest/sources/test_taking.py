"""Batches are ingested exactly once, despite any end of a run; rows come from a list (`tests/spark`: from Spark)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from retention.errors import BusyError, DamagedError, RefusedError, RetentionError
from retention.ingest.sources import batches
from retention.ingest.sources.contents import SourceContents
from retention.ingest.sources.directory import NO_WISHES, SourceFile
from retention.ingest.sources.directory_source import DirectorySource
from retention.ingest.sources.positions import DirectoryPosition
from retention.ingest.sources.records import Records
from retention.ingest.sources.taking import Taking
from retention.storage.crash_points import Step
from retention.storage.listing import list_files
from tests.support.kills import killed_at
from tests.support.list_reader import ListReader
from tests.support.plain_store import opened_stream, store_of


class World:
    """A directory of JSON lines, ingested into a stream."""

    def __init__(self, folder: Path) -> None:
        self.opened = opened_stream(folder)
        self.source = folder / "source"
        self.source.mkdir()
        self.reader = ListReader(self.opened)

    def write(self, name: str, *lines: str) -> None:
        with (self.source / name).open("a") as sink:
            sink.writelines(f"{line}\n" for line in lines)

    def take(self) -> int:
        taking = Taking(self.opened, str(self.source), lambda: self.reader)
        known = taking.so_far()
        contents = SourceContents(str(self.source), "json")
        directory = DirectorySource(str(self.source), "json", contents, NO_WISHES)
        listing = [
            SourceFile(file.path, file.length, file.modified_ns, "", file.inode)
            for file in list_files(str(self.source))
        ]
        assert not isinstance(known.position, str)
        backlog = directory.backlog(listing, known.position)  # type: ignore[arg-type]
        return sum(done.messages for done in taking.take(known, backlog))

    def rows(self) -> list[str]:
        if not self.opened.store.exists():
            return []
        return sorted(
            value.decode() for value in store_of(self.opened).rows()["payload"].to_pylist()
        )

    @property
    def records(self) -> Records:
        return Records.of(self.opened, str(self.source))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_came_since_is_taken_and_nothing_twice(world: World) -> None:
    assert world.take() == 0
    assert not world.opened.store.exists(), "a source without files begins no stream"
    world.write("a", "1", "2")
    assert world.take() == 2
    assert world.take() == 0
    world.write("b", "3")
    world.write("a", "4")
    assert world.take() == 2
    assert world.rows() == ["1", "2", "3", "4"]


def test_the_name_of_a_renamed_file_is_free_for_another_one(world: World) -> None:
    world.write("a.log", "1")
    world.take()
    world.write("a.log", "2")
    (world.source / "a.log").rename(world.source / "a.log.1")
    assert world.take() == 1
    world.write("a.log", "3")
    assert world.take() == 1
    assert world.rows() == ["1", "2", "3"]


@pytest.mark.parametrize("step", [Step.TAKEN_RECORDED, Step.DATA_WRITTEN, Step.TAKEN_SETTLED])
@pytest.mark.parametrize("time", [1, 2])
def test_a_run_that_is_killed_repeats_and_loses_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, step: Step, time: int
) -> None:
    monkeypatch.setattr(batches, "MOST_FILES", 1)
    for name in "abc":
        world.write(name, name)
    with killed_at(step, time):
        world.take()
    before = world.rows()
    assert len(before) == (time if step is Step.TAKEN_SETTLED else time - 1)
    world.take()
    assert world.rows() == ["a", "b", "c"]
    assert world.take() == 0


def test_a_run_that_another_one_overtakes_takes_nothing_twice(world: World) -> None:
    world.write("a", "1")
    rival = World.__new__(World)
    rival.__dict__.update(world.__dict__ | {"reader": ListReader(world.opened)})

    def overtake() -> None:
        rival.take()

    world.reader.after_read.append(overtake)
    with pytest.raises(
        BusyError, match=r"another run took rows of .* meanwhile; each was appended once"
    ):
        world.take()
    assert world.rows() == ["1"]
    world.reader.after_read.clear()
    assert world.take() == 0


def test_a_file_that_is_written_to_while_it_is_read_is_not_taken(world: World) -> None:
    world.write("a", "1")
    world.reader.after_read.append(lambda: world.write("a", "2"))
    with pytest.raises(
        BusyError, match="a was written to while it was read; nothing of its batch was taken"
    ):
        world.take()
    assert world.rows() == []
    world.reader.after_read[:] = [(world.source / "a").unlink]
    with pytest.raises(BusyError, match="a was deleted while it was read"):
        world.take()


def test_a_run_that_fails_leaves_the_record_as_it_was(world: World) -> None:
    world.write("a", "1")

    def refuse() -> None:
        raise RetentionError("the disk is full")

    store_of(world.opened).before_commit.append(refuse)
    with pytest.raises(RetentionError, match="the disk is full"):
        world.take()
    assert world.take() == 1


def test_a_failure_of_a_later_batch_says_what_came_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_FILES", 1)
    world.write("a", "1", "2")
    world.write("b", "3")

    def refuse() -> None:
        raise RetentionError("the disk is full; nothing was changed")

    def wait_for_the_next() -> None:
        store_of(world.opened).before_commit.append(refuse)

    store_of(world.opened).before_commit.append(wait_for_the_next)
    sentence = (
        f"the disk is full; nothing was changed (2 messages of {world.source} were appended before, "
        "and are kept)"
    )
    with pytest.raises(RetentionError, match=f"^{re.escape(sentence)}$"):
        world.take()
    assert world.rows() == ["1", "2"]


def test_only_the_last_two_records_stay(world: World) -> None:
    for number in range(5):
        world.write(f"f{number}", str(number))
        world.take()
    kept = [path.name for path in Path(world.records.directory).glob("*.taken")]
    assert sorted(kept) == [f"{number:020d}.taken" for number in (3, 4)]


def test_a_record_that_is_lost_or_damaged_is_refused(world: World) -> None:
    world.write("a", "1")
    world.take()
    [record] = Path(world.records.directory).glob("*.taken")
    content = record.read_bytes()
    record.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        DamagedError, match="the record of the rows taken from the source cannot be read"
    ):
        world.take()
    record.unlink()
    with pytest.raises(RefusedError, match="were taken before, but the position is lost with"):
        world.take()
    record.write_bytes(content)
    assert world.take() == 0


def test_counters_that_begin_anew_bring_nothing_again(world: World) -> None:
    world.write("a", "1")
    world.take()
    note = json.loads((Path(world.records.directory) / "last.json").read_text())
    assert note == {"batch": 0, "generation": 0}
    assert world.records.last(0) == 0
    assert world.records.last(7) is None, "a stream that was dropped takes everything anew"
    assert isinstance(world.records.read(0), DirectoryPosition)
