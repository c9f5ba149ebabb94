"""Each planted damage is found by the check that is there for it; what its remedy says makes the stream whole again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.datafile.subject_digest import digest_at
from retention.history.runs import history_of
from retention.storage.checksum import verified, with_checksum
from retention.verify.finding import Verification
from tests.support.cached_statistics import rewrite
from tests.support.sandboxes import NOW, Commands, configured, lines

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 100, "segment_size": "4KiB"}


@dataclass(frozen=True)
class Planted:
    """A stream's directories, to damage."""

    folder: Path
    format: str

    @property
    def root(self) -> Path:
        return self.folder / "streams" / "ORDERS"

    @property
    def data(self) -> list[Path]:
        """The live data files, the one of the lowest sequences first."""
        files = self.warehouse.stream("ORDERS").opened.store.snapshot().files["path"].to_pylist()
        return sorted(
            (self.root / "messages" / path for path in files),
            key=lambda file: (int(file.parent.name.removeprefix("segment=")), str(file)),
        )

    @property
    def entries(self) -> list[Path]:
        log = "messages/_delta_log" if self.format == "delta" else "_retention/log"
        return sorted((self.root / log).glob("*.json"))

    @property
    def warehouse(self) -> Warehouse:
        return open_warehouse(self.folder / "retention.yaml", engine="local", clock=lambda: NOW)

    @property
    def records(self) -> list[Path]:
        """The outcomes of runs, oldest first."""
        return sorted((self.folder / "runs" / "ORDERS").glob("*.done.json"))

    def record_of(self, file: Path) -> Path:
        """The record beside a data file."""
        return self.root / "_retention/subjects" / file.relative_to(self.root / "messages")

    def verify(self) -> Verification:
        return self.warehouse.stream("ORDERS").verify()


@pytest.fixture(scope="module", params=["delta", "parquet"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A stream with a pass, a purge of a subject, an undone purge, a consumer and a pause that is over."""
    folder = tmp_path_factory.mktemp(request.param)
    configured(folder, ORDERS, format=request.param)
    planted = Planted(folder, request.param)
    stream = planted.warehouse.new_stream("ORDERS")
    for subject in ("orders.a", "orders.b", "orders.a"):
        stream.publish(lines(60, subject))
    stream.plan().apply()
    undone = stream.purge(subject="orders.a").apply()
    planted.warehouse.undo(undone.run)
    stream.purge(subject="orders.b", keep=10).apply()
    assert Commands(folder).run("consumer", "add", "ORDERS", "billing").exit_code == 0
    planted.warehouse.pause(["ORDERS"], reason="a trial")
    planted.warehouse.resume(["ORDERS"], reason="over")
    result = planted.verify()
    assert (result.verdict, result.damages) == ("ok", ())
    assert result.read_files == result.files == len(planted.data) > 2
    return planted


@pytest.fixture
def planted(whole: Planted, tmp_path: Path) -> Planted:
    shutil.copytree(whole.folder, tmp_path / "warehouse", symlinks=True)
    return replace(whole, folder=tmp_path / "warehouse")


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def swap(one: Path, other: Path) -> None:
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)


def swap_with_records(planted: Planted) -> None:
    one, other = planted.data[:2]
    swap(planted.record_of(one), planted.record_of(other))
    swap(one, other)


def edit(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a record, and give it the checksum of what it says now."""
    fields = verified(json.loads(file.read_text()))
    change(fields)
    file.write_text(json.dumps(with_checksum(fields)))


def edit_entry(planted: Planted, pattern: str, text: str) -> None:
    """Replace text in the first entry of the log that has it, newest first."""
    for entry in reversed(planted.entries):
        content = entry.read_text()
        if re.search(pattern, content):
            changed = re.sub(pattern, text, content, count=1)
            if planted.format == "parquet":
                fields = verified(json.loads(content))
                fields = json.loads(re.sub(pattern, text, json.dumps(fields), count=1))
                changed = json.dumps(with_checksum(fields))
            entry.write_text(changed)
            return
    raise AssertionError(pattern)


def log_a_removed_file_again(planted: Planted) -> None:
    """Take the removal of a file out of the entry of the last purge."""
    entry = planted.entries[-1]
    while '"remove":{' not in entry.read_text() and '"remove":["' not in entry.read_text():
        entry = planted.entries[planted.entries.index(entry) - 1]
    if planted.format == "delta":
        kept = [line for line in entry.read_text().splitlines() if not line.startswith('{"remove"')]
        entry.write_text("\n".join(kept) + "\n")
    else:
        edit(entry, lambda fields: fields.update(remove=[]))
        for trashed in (planted.root / "_retention/trash").rglob("*.parquet"):
            place = (
                planted.root / "messages" / trashed.relative_to(planted.root / "_retention/trash")
            )
            if not place.exists():
                shutil.copy(trashed, place)


def rewrite_statistics(planted: Planted) -> None:
    """Say in the statistics beside the table that files have fewer markers and other times."""

    def change(rows: pa.Table) -> pa.Table:
        at = rows.column_names.index("markers")
        more = pa.array([value + 1 for value in rows["markers"].to_pylist()], pa.int64())
        return rows.set_column(at, rows.schema.field(at), more)

    for file in (planted.root / "_retention/stats").iterdir():
        rewrite(file, change)


def count_other_subjects(planted: Planted) -> None:
    place = digest_at(str(planted.record_of(planted.data[0])))
    kept = place.load()
    assert kept is not None
    names = pa.array([f"{name}x" for name in kept.counts["subject"].to_pylist()])
    place.write(replace(kept, counts=kept.counts.set_column(0, kept.counts.schema.field(0), names)))


def removed_of(planted: Planted) -> Path:
    """The record of the run with the most removed messages."""
    return max(
        planted.records, key=lambda file: json.loads(file.read_text()).get("removed_messages", 0)
    )


def forge_a_run(planted: Planted) -> None:
    """Add a run that says that it committed the version of another one."""
    history = history_of(str(planted.folder), "ORDERS")
    real = history.done(removed_of(planted).name.removesuffix(".done.json"))
    intent = None if real is None else history.begun(real.run)
    assert real is not None
    assert intent is not None
    forged = history.name_run(NOW)
    history.begin(intent.updated(run=forged))
    history.finish(real.updated(run=forged, removed_messages=0, by_rule={}))


def remove_record(planted: Planted, pattern: str) -> None:
    run = removed_of(planted).name.removesuffix(".done.json")
    for file in planted.folder.rglob(pattern.replace("RUN", run)):
        file.unlink()


def newest(directory: Path) -> Path:
    return max(file for file in directory.rglob("*.json") if file.is_file())


DAMAGES: dict[str, tuple[str, Callable[[Planted], object]]] = {
    "a bit of a page is flipped": ("content", lambda at: flip(at.data[0], 60)),
    "a bit of a footer is flipped": ("content", lambda at: flip(at.data[-1], -20)),
    "a file is truncated": (
        "size",
        lambda at: at.data[0].write_bytes(at.data[0].read_bytes()[:-1]),
    ),
    "a file got longer": (
        "size",
        lambda at: at.data[0].write_bytes(at.data[0].read_bytes() + b"x"),
    ),
    "a file is missing": ("size", lambda at: at.data[0].unlink()),
    "a file is empty": ("size", lambda at: at.data[0].write_bytes(b"")),
    "two files are swapped": ("size", lambda at: swap(*at.data[:2])),
    "two files are swapped with their records": ("size", swap_with_records),
    "another file has its length": (
        "content",
        lambda at: at.data[0].write_bytes(bytes(len(at.data[0].read_bytes()))),
    ),
    "a record beside a file is damaged": ("record", lambda at: flip(at.record_of(at.data[0]), 40)),
    "a record beside a file counts other subjects": ("record", count_other_subjects),
    "the log has other bounds": (
        "log",
        lambda at: edit_entry(at, r'((?:max_seq|seq)\\?": ?)120\b', r"\g<1>119"),
    ),
    "the log has another length": (
        "size",
        lambda at: edit_entry(
            at, r'("add":(?:(?!size|file_bytes).)*"(?:size|file_bytes)": ?)(\d+)', r"\g<1>9\2"
        ),
    ),
    "an entry of the log is no JSON": ("log", lambda at: flip(at.entries[-1], 0)),
    "an entry of the log is missing": ("log", lambda at: at.entries[-2].unlink()),
    "a removed file is in the log again": ("history or log", log_a_removed_file_again),
    "the next sequence is lower": (
        "counters",
        lambda at: edit_entry(at, r'(next_seq(?:/0","version"|": ?\{"0"): ?)181\b', r"\g<1>150"),
    ),
    "a run's record is missing": ("history", lambda at: remove_record(at, "RUN.*.json")),
    "a run's record is damaged": ("history", lambda at: flip(removed_of(at), 30)),
    "a run's record says that fewer were removed": (
        "evidence",
        lambda at: edit(removed_of(at), lambda fields: fields.update(removed_messages=1)),
    ),
    "a run is forged": ("history", forge_a_run),
    "the evidence of a run is missing": ("evidence", lambda at: remove_record(at, "RUN.*.arrow")),
    "the evidence of a run is damaged": (
        "history or evidence",
        lambda at: flip(next(at.root.glob("_retention/reports/*.ranges.arrow")), 300),
    ),
    "a consumer's record is damaged": (
        "consumers",
        lambda at: flip(newest(at.root / "consumers"), 9),
    ),
    "the consumers are missing": ("consumers", lambda at: shutil.rmtree(at.root / "consumers")),
    "a pause's record is damaged": (
        "pauses",
        lambda at: flip(newest(at.root / "_retention/pauses"), 5),
    ),
}
"""The damage → the check that finds it (or that of the other format), and how it is planted."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_planted_damage_is_found_by_its_check(planted: Planted, damage: str) -> None:
    kept = planted.folder.with_name("kept")
    shutil.copytree(planted.folder, kept, symlinks=True)
    check, plant = DAMAGES[damage]
    plant(planted)
    result = planted.verify()
    assert result.verdict == "damaged"
    assert {each.check for each in result.damages} & set(check.split(" or ")), result.damages
    assert all(each.remedy and each.detail for each in result.damages), result.damages
    shutil.rmtree(planted.folder)
    shutil.copytree(kept, planted.folder, symlinks=True)
    assert planted.verify().verdict == "ok", "the copy restores it"


def test_rewritten_statistics_are_found_and_made_again(planted: Planted) -> None:
    if planted.format == "parquet":
        pytest.skip("its statistics are in the log, whose entries have checksums")
    rewrite_statistics(planted)
    result = planted.verify()
    assert {each.check for each in result.damages} == {"statistics"}
    shutil.rmtree(planted.root / "_retention/stats")
    planted.warehouse.plan(["ORDERS"])
    assert planted.verify().verdict == "ok"


def test_a_given_up_file_leaves_nothing_to_find(planted: Planted) -> None:
    planted.data[0].unlink()
    [damage] = planted.verify().damages
    words = re.search(r"`retention (repair lost ORDERS \S+ --yes)`", damage.remedy)
    assert words is not None
    assert Commands(planted.folder).run(*words[1].split()).exit_code == 0
    assert planted.verify().verdict == "ok"


def test_a_file_without_a_digest_is_unverified_until_one_is_recorded(planted: Planted) -> None:
    planted.record_of(planted.data[0]).unlink()
    result = planted.verify()
    assert (result.verdict, len(result.unverified)) == ("unverified", 1)
    assert "no digest is recorded" in result.unverified[0].reason
    column = pq.ParquetFile(planted.data[0]).metadata.row_group(0).column(0)
    middle = column.data_page_offset + column.total_compressed_size - 1
    flip(planted.data[0], middle)
    assert planted.verify().verdict == "damaged", "the checksum of a page finds it"
    flip(planted.data[0], middle)
    stream = planted.warehouse.stream("ORDERS")
    assert (stream.verify(record=True).recorded, stream.verify().verdict) == (1, "ok")


def test_a_removed_file_without_a_digest_is_decoded(planted: Planted) -> None:
    live = set(planted.data)
    places = [*(planted.root / "messages").rglob("*.parquet")]
    places += (planted.root / "_retention/trash").rglob("*.parquet")
    removed = next(
        place for place in places if place not in live and "_delta_log" not in place.parts
    )
    below = "_retention/trash" if "trash" in removed.parts else "messages"
    record = planted.root / "_retention/subjects" / removed.relative_to(planted.root / below)
    record.unlink()
    assert planted.verify().verdict == "ok"
    content = removed.read_bytes()
    for changed in (content[:-1], bytes(len(content))):
        removed.write_bytes(changed)
        assert [each.check for each in planted.verify().damages] == ["undo"]
    removed.unlink()
    assert planted.verify().verdict == "ok", "reclaim deletes removed files"


def test_damages_of_an_archive_are_found(tmp_path: Path) -> None:
    configured(tmp_path, {**ORDERS, "archive": "archive"}, format="delta")
    planted = Planted(tmp_path, "delta")
    stream = planted.warehouse.new_stream("ORDERS")
    stream.publish(lines(150))
    stream.plan().apply()
    stream.publish(lines(60))
    stream.plan().apply()
    assert planted.verify().verdict == "ok"
    manifests = sorted((tmp_path / "archive").rglob("manifests/*.json"))
    copies = sorted((tmp_path / "archive").rglob("messages/**/*.parquet"))
    assert (len(manifests), len(copies) > 1) == (2, True)
    for place in (*manifests, *copies[:2]):
        content = place.read_bytes()
        for changed in (None, b"", content[:-1]):
            place.unlink() if changed is None else place.write_bytes(changed)
            found = planted.verify().damages
            assert {each.check for each in found} == {"archive"}, (place, changed)
            place.write_bytes(content)
    configured(tmp_path, {**ORDERS, "archive": "elsewhere"}, format="delta")
    assert planted.verify().verdict == "ok", "the archive lay in another place then"
