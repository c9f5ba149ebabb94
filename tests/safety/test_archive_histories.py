"""Archives of diverging tables: copies, tables restored from a backup, and manifests of earlier releases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.doctor.streams import check_stream
from retention.errors import RefusedError
from retention.storage.checksum import with_checksum
from retention.storage.crash_points import Step
from tests.support.kills import killed_at
from tests.support.laying import SECOND, START, held
from tests.support.overwritten_log import newest, overwrite
from tests.support.sandboxes import Commands

FORMATS = ("delta", "parquet")


@dataclass
class Lake:
    """A warehouse that keeps two messages, and archives the others externally."""

    folder: Path
    archive: str
    format: str = "delta"
    now_ns: int = START

    def warehouse(self) -> Warehouse:
        """The warehouse, a second later."""
        self.now_ns += SECOND
        now_ns = self.now_ns
        self.folder.mkdir(exist_ok=True)
        file = self.folder / "retention.yaml"
        stream = {"name": "ORDERS", "subjects": [">"], "no_ack": True, "max_msgs": 2}
        defaults = {"format": self.format, "archive": self.archive, "segment_size": "100B"}
        content = {"warehouse": ".", "defaults": defaults, "streams": [stream]}
        file.write_text(json.dumps(content))
        return open_warehouse(file, engine="local", clock=lambda: now_ns)

    def stream(self) -> Any:
        return self.warehouse().new_stream("ORDERS")

    def day(self, name: str, seqs: Sequence[int]) -> None:
        """Publish messages, then remove and archive all except two."""
        self.stream().publish([json.dumps({"subject": "a", "data": f"{name}-{n}"}) for n in seqs])
        self.remove()

    def remove(self) -> None:
        [outcome] = self.warehouse().apply()
        if outcome.error is not None:
            raise outcome.error

    def texts(self, stream: str = "ORDERS") -> list[str]:
        return [
            payload.decode() for payload in held(self.warehouse(), stream)["payload"].to_pylist()
        ]

    def copied(self, place: Path, archive: str | None = None) -> Lake:
        """A plain copy of the directory."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder, place, symlinks=True)
        return replace(self, folder=place, archive=archive or self.archive)

    def manifests(self) -> list[Path]:
        return sorted(Path(self.archive, "ORDERS").glob("*/manifests/*.json"))


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Messages 1 and 2 are archived, 3 and 4 are stored."""
    made = Lake(tmp_path / "prod", str(tmp_path / "archive"), request.param)
    made.day("first", range(1, 5))
    return made


def after_a_lost_day(lake: Lake, tmp_path: Path) -> tuple[Path, Path]:
    """Restore a warehouse of yesterday, and continue; returns the manifests of the lost day, and of its replacement."""
    yesterday = lake.copied(tmp_path / "backup")
    lake.day("LOST", range(5, 9))
    shutil.rmtree(lake.folder)
    yesterday.copied(lake.folder)
    [lost] = set(lake.manifests()) - set(lake_manifests_of(yesterday, lake))
    lake.day("second", range(5, 12))
    [second] = set(lake.manifests()) - {lost, lake_manifests_of(yesterday, lake)[0]}
    return lost, second


def lake_manifests_of(yesterday: Lake, lake: Lake) -> list[Path]:
    """The manifests in a backup's run history."""
    runs = (yesterday.folder / "runs" / "ORDERS").glob("*.done.json")
    known = {json.loads(run.read_text()).get("archived", {}).get("manifest") for run in runs}
    return [manifest for manifest in lake.manifests() if str(manifest) in known]


SECOND_DAY = ["first-1", "first-2", "first-3", "first-4", *(f"second-{n}" for n in range(5, 12))]


def test_a_lost_day_never_comes_back_under_sequences_given_out_again(
    lake: Lake, tmp_path: Path
) -> None:
    lost, _ = after_a_lost_day(lake, tmp_path)
    done = Commands(lake.folder).run("restore", "ORDERS")
    assert done.exit_code == 0, done.output
    writer = json.loads(lost.read_text())["writer"]
    assert (
        f"left out, since no commit of this table leads there: {lost} (written by {lake.folder} on {writer['host']}); "
        "--from MANIFEST --as NEWNAME restores such a history"
    ) in done.stdout
    assert lake.texts() == SECOND_DAY
    # The lost day can be restored as a separate stream, with the messages archived before it.
    into = lake.warehouse().new_stream("LOST")
    assert lake.stream().restore(str(lost), into=into).messages == 6
    assert lake.texts("LOST") == ["first-1", "first-2", "first-3", "first-4", "LOST-5", "LOST-6"]


def test_a_lost_day_that_alone_has_the_messages_is_refused_by_name(
    tmp_path: Path, lake: Lake
) -> None:
    yesterday = lake.copied(tmp_path / "backup")
    lake.day("LOST", range(5, 9))
    shutil.rmtree(lake.folder)
    yesterday.copied(lake.folder)
    [_, lost] = sorted(lake.manifests(), key=lambda path: path.stat().st_mtime_ns)
    refused = Commands(lake.folder).run("restore", "ORDERS", "--seq", "5..")
    assert refused.exit_code == 4
    host = json.loads(lost.read_text())["writer"]["host"]
    assert (
        f"ORDERS: {lost} (written by {lake.folder} on {host}): no commit of this table, and no manifest of its own, "
        "leads there, so the sequences may belong to other messages; nothing was changed; restore such a history "
        f"into a new stream, with --from {lost} --as NEWNAME"
    ) in refused.output + refused.stderr
    told = Commands(lake.folder).run("restore", "ORDERS", "--from", lost, "--as", "LOST")
    assert told.exit_code == 0, told.output
    with pytest.raises(RefusedError, match="no commit of this table"):
        lake.stream().restore(str(lost))
    assert lake.stream().restore().messages == 2
    assert lake.texts() == ["first-1", "first-2", "first-3", "first-4"]


@pytest.mark.parametrize("order", ["copy first", "copy last"])
def test_each_of_two_copies_restores_the_common_past_and_its_own(
    lake: Lake, tmp_path: Path, order: str
) -> None:
    staging = lake.copied(tmp_path / "staging")
    staging.stream().repair_place().apply()
    days = [(staging, "staging", range(5, 11)), (lake, "prod", range(5, 13))]
    for of, name, seqs in days if order == "copy first" else reversed(days):
        of.day(name, seqs)
    past = ["first-1", "first-2", "first-3", "first-4"]
    for one, name, last in ((lake, "prod", 12), (staging, "staging", 10)):
        restored = one.stream().restore()
        assert one.texts() == [*past, *(f"{name}-{n}" for n in range(5, last + 1))]
        assert len(restored.left_out) == 1
        assert one.stream().restore().messages == 0
    # Without a choice between the two, neither is restored.
    other = Lake(tmp_path / "other", lake.archive, lake.format)
    stream, into = other.stream(), other.warehouse().new_stream("BACK")
    with pytest.raises(RefusedError, match=r"manifests/.*manifests/"):
        stream.restore(into=into)
    [theirs] = [path for path in lake.manifests() if "staging" in path.read_text()]
    assert stream.restore(str(theirs), into=into).messages == 9
    assert other.texts("BACK") == [*past, *(f"staging-{n}" for n in range(5, 10))]


def test_a_copy_is_told_before_it_writes_to_the_archive(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    staging = lake.copied(tmp_path / "staging")
    host = json.loads(lake.manifests()[0].read_text())["writer"]["host"]
    copy = (
        f"ORDERS: the warehouse at {staging.folder} is a copy of {lake.folder} (host {host}), or was moved from there, "
        f"and its archive is that one's, {lake.archive}"
    )
    remedy = (
        "give a copy an `archive:` of its own, or say that this place may write there, too, with "
        "`retention repair place ORDERS --yes`"
    )
    line = json.dumps({"subject": "a", "data": "x"})
    staging.stream().publish([line])
    staging.stream().publish([line, line])
    assert [record.getMessage() for record in caplog.records if copy in record.getMessage()] == [
        f"{copy}; messages are added, and nothing is removed until you {remedy}"
    ]
    before = staging.texts()
    command = Commands(staging.folder)
    told = command.run("apply", "--yes")
    assert told.exit_code == 4
    assert f"{copy}; nothing was removed; {remedy}" in told.output + told.stderr
    assert staging.texts() == before
    assert len(lake.manifests()) == 1
    findings = [
        found for found in check_stream(staging.stream().opened) if found.check == "archive"
    ]
    assert [(found.result, found.remedy.partition(",")[0]) for found in findings] == [
        ("problem", "give a copy an `archive:` of its own")
    ]
    lake.day("prod", range(5, 7))
    assert "repeat it with --yes" in command.run("repair", "place", "ORDERS").stdout
    assert command.run("apply", "--yes").exit_code == 4
    assert command.json("repair", "place", "ORDERS", "--yes")["is_done"]
    assert command.run("apply", "--yes").exit_code == 0
    assert "nothing to repair" in command.run("repair", "place", "ORDERS").stdout


def test_a_copy_with_an_archive_of_its_own_is_not_stopped(lake: Lake, tmp_path: Path) -> None:
    staging = lake.copied(tmp_path / "staging", archive=str(tmp_path / "apart"))
    staging.day("staging", range(5, 9))
    staging.stream().restore()
    past = staging.stream().restore(lake.archive)
    assert past.messages == 2
    assert staging.texts() == [
        "first-1",
        "first-2",
        "first-3",
        "first-4",
        *(f"staging-{n}" for n in range(5, 9)),
    ]
    # A copy of a copy, with a shared archive next to both.
    aside = Lake(tmp_path / "a" / "lake", "../kept", lake.format)
    aside.folder.parent.mkdir()
    aside.day("first", range(1, 5))
    shutil.copytree(aside.folder.parent, tmp_path / "b")
    Lake(tmp_path / "b" / "lake", "../kept", lake.format, aside.now_ns).day("second", range(5, 9))


def test_the_same_warehouse_at_another_path_is_not_stopped(lake: Lake, tmp_path: Path) -> None:
    link = tmp_path / "mounted"
    link.symlink_to(lake.folder)
    Lake(link, lake.archive, lake.format, lake.now_ns).day("linked", range(5, 7))
    moved = tmp_path / "moved"
    lake.folder.rename(moved)
    Lake(moved, lake.archive, lake.format, lake.now_ns + 9 * SECOND).day("moved", range(7, 9))


def as_earlier_release(manifest: Path) -> Path:
    """Write a manifest of an earlier release: without a predecessor and without a writer."""
    fields = json.loads(manifest.read_text())
    for name in ("previous", "writer", "check"):
        del fields[name]
    fields["format_version"] = 1
    place = manifest.with_name(f"{fields['plan_id']}.json")
    manifest.unlink()
    place.write_text(json.dumps(with_checksum(fields)))
    return place


def test_manifests_of_earlier_releases_count_where_the_run_history_proves_them(
    lake: Lake, tmp_path: Path
) -> None:
    after_a_lost_day(lake, tmp_path)
    old = [as_earlier_release(manifest) for manifest in lake.manifests()]
    [lost] = [path for path in old if path.stem not in done_plans(lake.folder)]
    restored = lake.stream().restore()
    assert lake.texts() == SECOND_DAY
    assert [left.manifest for left in restored.left_out] == [str(lost)]


def done_plans(folder: Path) -> set[str]:
    records = (folder / "runs" / "ORDERS").glob("*.done.json")
    return {json.loads(record.read_text()).get("plan_id", "") for record in records}


def test_manifests_of_earlier_releases_without_a_history_come_back_apart_or_not_at_all(
    lake: Lake, tmp_path: Path
) -> None:
    lost, second = after_a_lost_day(lake, tmp_path)
    lost, second = as_earlier_release(lost), as_earlier_release(second)
    for manifest in set(lake.manifests()) - {lost, second}:
        as_earlier_release(manifest)
    shutil.rmtree(lake.folder / "runs")
    with pytest.raises(RefusedError, match="no commit of this table"):
        lake.stream().restore()
    other = Lake(tmp_path / "other", lake.archive, lake.format)
    stream, into = other.stream(), other.warehouse().new_stream("BACK")
    with pytest.raises(RefusedError, match="another message as sequence 5") as refused:
        stream.restore(into=into)
    assert str(lost) in str(refused.value)
    assert str(second) in str(refused.value)
    assert stream.restore(str(second), into=into).messages == 7
    assert other.texts("BACK")[-1] == "second-9"


def test_a_run_that_was_killed_before_its_commit_changes_nothing(
    lake: Lake, tmp_path: Path
) -> None:
    with killed_at(Step.ARCHIVE_TOLD):
        lake.day("second", range(5, 9))
    assert len(lake.manifests()) == 2
    restored = lake.stream().restore()
    assert (restored.messages, restored.already, restored.left_out) == (2, 5, ())
    lake.remove()
    restored = lake.stream().restore()
    assert (restored.messages, restored.left_out) == (6, ())
    assert lake.texts() == [
        "first-1",
        "first-2",
        "first-3",
        "first-4",
        *(f"second-{n}" for n in range(5, 9)),
    ]
    other = Lake(tmp_path / "other", lake.archive, lake.format)
    assert other.stream().restore(into=other.warehouse().new_stream("BACK")).messages == 6


def test_an_archive_that_was_left_for_another_place_is_still_its_own(
    lake: Lake, tmp_path: Path
) -> None:
    first = lake.archive
    lake.archive = str(tmp_path / "later")
    lake.day("second", range(5, 9))
    run = lake.stream().history()
    lake.warehouse().undo(next(iter(run))["run"])
    lake.remove()
    lake.stream().restore(first)
    assert lake.texts()[:2] == ["first-1", "first-2"]
    lake.stream().restore()
    assert lake.texts() == [
        "first-1",
        "first-2",
        "first-3",
        "first-4",
        *(f"second-{n}" for n in range(5, 9)),
    ]


def test_a_pass_that_spark_overwrote_is_of_the_history_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "prod", str(tmp_path / "archive"))
    texts = []
    for day in range(3):
        names = [day * 4 + number for number in range(4)]
        texts += [f"day-{name}" for name in names]
        lake.day("day", names)
        overwrite(lake.warehouse(), newest(lake.warehouse()))
        [again] = lake.stream().repair_lost_commits().apply().commits
        assert again.reason is None
    assert lake.stream().restore().left_out == ()
    assert lake.texts() == texts
