from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.inventory import DataFile
from retention.core.table_requirements import AssertConsumerEdits
from retention.core.table_updates import SetConsumerEdits
from retention.errors import BusyError, DamagedError, RefusedError, UsageError
from retention.restore import select
from retention.restore.select import MessageRange, StoredFile, select_parts
from retention.storage.crash_points import Step, watched_by
from retention.stores.archive_manifest import ArchivedFile, read_manifests
from tests.support.command_line import invoke
from tests.support.laying import SECOND, START, even_segments, held, lay, warehouse_with
from tests.support.reclaiming import TICK_S, real_warehouse
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = START + 100 * SECOND
AS_OF = START + 85 * SECOND


@pytest.fixture(params=["delta", "parquet"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Sequences 1 to 25 of 40 are due by age: two whole segments, and half of a third."""
    rules: dict[str, Any] = {"max_age": "60s", "archive": "archive"}
    opened = warehouse_with(tmp_path / "w", request.param, NOW, **rules)
    lay(opened.stream("ORDERS").opened, even_segments(4, 10))
    return opened


def gone(warehouse: Warehouse) -> pa.Table:
    """Remove them; returns the messages stored before."""
    before = held(warehouse)
    warehouse.stream("ORDERS").plan(AS_OF).apply()
    return before


def seqs(table: pa.Table) -> list[int]:
    numbers: list[int] = table["seq"].to_pylist()
    return numbers


def directory(warehouse: Warehouse) -> Path:
    [inside] = Path(warehouse.location, "archive", "ORDERS").iterdir()
    return inside


def test_an_undo_of_a_run_before_the_restore_is_no_damage(warehouse: Warehouse) -> None:
    gone(warehouse)
    stream = warehouse.stream("ORDERS")
    [first, *_] = [run["run"] for run in stream.history() if run["removed_messages"]]
    stream.restore()
    stream.delete(*range(1, 26)).apply()
    warehouse.undo(first)
    assert stream.verify().damages == ()


def test_an_undo_of_a_run_after_the_restore_is_no_damage_either(warehouse: Warehouse) -> None:
    gone(warehouse)
    stream = warehouse.stream("ORDERS")
    [first, *_] = [run["run"] for run in stream.history() if run["removed_messages"]]
    stream.restore()
    second = stream.delete(*range(1, 26)).apply().run
    warehouse.undo(first)
    stream.delete(*range(1, 26)).apply()
    warehouse.undo(second)
    assert stream.verify().damages == ()


def test_what_went_is_back_where_it_was(warehouse: Warehouse) -> None:
    before = gone(warehouse)
    counters = warehouse.stream("ORDERS").opened.store.snapshot().counters
    restored = warehouse.stream("ORDERS").restore()
    assert held(warehouse).equals(before)
    assert (restored.messages, restored.already) == (25, 5)
    assert restored.expires_again == {"max_age": 25}
    after = warehouse.stream("ORDERS").opened.store.snapshot().counters
    assert after.next_seq[0] == counters.next_seq[0] == 41
    assert after.open_base[0] == counters.open_base[0]
    state = warehouse.stream("ORDERS").state().as_json()
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (40, 1, 40)
    assert state["bytes"] == sum(before["size"].to_pylist())
    assert state["segments"] == 4
    [record, *_] = warehouse.history(["ORDERS"])
    assert (record["kind"], record["restored_messages"]) == ("restore", 25)


def test_a_second_time_nothing_is_left_to_bring_back(warehouse: Warehouse) -> None:
    gone(warehouse)
    warehouse.stream("ORDERS").restore()
    version = warehouse.stream("ORDERS").opened.store.snapshot().version
    again = warehouse.stream("ORDERS").restore()
    assert (again.messages, again.already, again.run) == (0, 30, None)
    assert warehouse.stream("ORDERS").opened.store.snapshot().version == version


@pytest.mark.parametrize(("first", "last"), [(5, 14), (22, 23), (1, 1), (25, 30)])
def test_a_range_comes_back_and_nothing_else(warehouse: Warehouse, first: int, last: int) -> None:
    gone(warehouse)
    stream = warehouse.stream("ORDERS")
    stream.restore(wanted=MessageRange(first=first, last=last))
    assert seqs(held(warehouse)) == [*range(first, min(last, 25) + 1), *range(26, 41)]
    stream.restore()
    assert seqs(held(warehouse)) == list(range(1, 41))


def test_what_goes_twice_is_archived_twice_and_comes_back_once(warehouse: Warehouse) -> None:
    before = gone(warehouse)
    warehouse.stream("ORDERS").delete(27, 29).apply()
    warehouse.stream("ORDERS").purge().apply()
    assert held_or_nothing(warehouse) == []
    restored = warehouse.stream("ORDERS").restore()
    assert (restored.messages, restored.already) == (40, 0)
    assert held(warehouse).equals(before)


def held_or_nothing(warehouse: Warehouse) -> list[int]:
    tables = warehouse.stream("ORDERS").messages()
    return [seq for table in tables for seq in table["seq"].to_pylist()]


def test_a_new_stream_has_the_same_messages_in_sealed_segments(warehouse: Warehouse) -> None:
    before = gone(warehouse)
    new = warehouse.new_stream("BACK")
    restored = warehouse.stream("ORDERS").restore(into=new)
    assert (restored.stream, restored.messages, restored.expires_again) == ("BACK", 30, {})
    assert held(warehouse, "BACK").equals(before.slice(0, 30))
    counters = new.opened.store.snapshot().counters
    assert (counters.next_seq[0], counters.open_base[0]) == (31, 31)
    new.publish([json.dumps({"subject": "a", "data": "x"})])
    assert seqs(held(warehouse, "BACK"))[-1] == 31
    assert seqs(held(warehouse)) == list(range(26, 41))
    again = warehouse.stream("ORDERS").restore(into=new)
    assert (again.messages, again.already) == (0, 30)
    with pytest.raises(RefusedError, match="written to before"):
        warehouse.stream("ORDERS").restore(wanted=MessageRange(last=3), into=new)


def test_what_is_damaged_is_refused_by_name(warehouse: Warehouse) -> None:
    gone(warehouse)
    before = held(warehouse)
    stream = warehouse.stream("ORDERS")
    manifest, first = (
        next(directory(warehouse).rglob(f"*.{kind}")) for kind in ("json", "parquet")
    )
    text, whole = manifest.read_text(), first.read_bytes()
    for damaged in (text.replace("max_age", "max_msg"), text[: len(text) // 2], ""):
        manifest.write_text(damaged)
        with pytest.raises(DamagedError, match=manifest.name):
            stream.restore()
    manifest.write_text(text)
    middle = len(whole) // 2
    for content in (whole[:-1], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        first.write_bytes(content)
        with pytest.raises(DamagedError, match=first.name):
            stream.restore()
    # Only its checksum shows that this is another file.
    first.write_bytes(whole.replace(b"parquet-cpp", b"parquet-cpq"))
    assert first.read_bytes() != whole
    with pytest.raises(DamagedError, match="SHA-256"):
        stream.restore()
    first.unlink()
    with pytest.raises(DamagedError, match="is missing"):
        stream.restore()
    assert held(warehouse).equals(before)
    first.write_bytes(whole)
    assert stream.restore().messages == 25


def test_copies_without_a_manifest_are_no_archive(warehouse: Warehouse) -> None:
    gone(warehouse)
    next(directory(warehouse).rglob("*.json")).unlink()
    with pytest.raises(UsageError, match="no archive of ORDERS"):
        warehouse.stream("ORDERS").restore()


def test_sequences_of_another_table_come_back_as_a_new_stream_only(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    gone(warehouse)
    other = warehouse_with(tmp_path / "other", "delta", NOW)
    lay(other.stream("ORDERS").opened, even_segments(1, 10))
    place = str(Path(warehouse.location, "archive"))
    with pytest.raises(RefusedError, match="another table"):
        other.stream("ORDERS").restore(place)
    with pytest.raises(RefusedError, match="another table"):
        other.stream("ORDERS").restore(str(directory(warehouse)))
    with pytest.raises(UsageError, match="names no archive"):
        other.stream("ORDERS").restore()
    assert other.stream("ORDERS").restore(place, into=other.new_stream("BACK")).messages == 30


def test_a_rival_that_comes_first_is_told_of(warehouse: Warehouse) -> None:
    gone(warehouse)
    stream = warehouse.stream("ORDERS")
    done: list[Step] = []

    def rival(step: Step) -> None:
        if step is Step.HISTORY_BEGUN and not done:
            done.append(step)
            opened = stream.opened
            opened.store.commit(
                from_nothing(opened.store.snapshot().counters.consumers), opened.store.snapshot()
            )

    with watched_by(rival), pytest.raises(BusyError):
        stream.restore()
    assert seqs(held(warehouse)) == list(range(26, 41))
    assert stream.restore().messages == 25


def from_nothing(count: int) -> Any:
    from retention.ports import Swap
    from retention.schemas.files import FILE_STATS, LOGGED_FILES

    nothing = (LOGGED_FILES.empty_table(), FILE_STATS.empty_table())
    edited = [AssertConsumerEdits(count)], [SetConsumerEdits(count + 1)]
    return Swap(*nothing, {"run": "rival"}, *edited)


def test_a_topic_comes_back_as_a_topic_and_not_over_a_purge(tmp_path: Path) -> None:
    with_logs(tmp_path, "delta")
    place = tmp_path / "retention.yaml"
    config = json.loads(place.read_text())
    config["defaults"]["archive"] = "archive"
    config["topics"] += [{"name": "again", "partitions": 2}, {"name": "small"}]
    place.write_text(json.dumps(config))
    warehouse = open_warehouse(place, engine="local", clock=lambda: NOW)
    import_logs(warehouse, tmp_path)
    topic, again = warehouse.topic(NAME), warehouse.topic("again")
    before = pa.concat_tables(topic.messages())
    topic.delete_segments(0, 1).apply()
    restored = topic.restore(wanted=MessageRange(partition=0, first=2))
    assert restored.messages == 8
    assert restored.expires_again == {"message_expiry": 8}
    assert topic.restore().messages == 2
    assert pa.concat_tables(topic.messages()).equals(before)
    with pytest.raises(UsageError, match="no message that is asked for"):
        topic.restore(wanted=MessageRange(partition=1))
    topic.purge().apply()
    with pytest.raises(RefusedError, match="of the topic before a purge"):
        topic.restore()
    for name, message in (("small", "partitions: 2"), ("stream", "under `topics:`")):
        with pytest.raises(RefusedError, match=message):
            topic.restore(into=warehouse.new_stream(name))
    assert topic.restore(into=again).messages == before.num_rows
    back = pa.concat_tables(again.messages())
    assert set(back["subject"].to_pylist()) == {"again"}
    assert back.drop(["subject"]).equals(before.drop(["subject"]))
    assert [part["active"] for part in again.state().as_json()["partitions"]] == [30, 10]


def test_a_range_on_the_command_line(warehouse: Warehouse) -> None:

    gone(warehouse)
    config = str(Path(warehouse.location, "retention.yaml"))

    def run(*words: str) -> Any:
        return invoke(["--config", config, "--engine", "local", *words])

    done = run("--format", "json", "restore", "ORDERS", "--seq", "24..")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["messages"] == 2
    done = run("restore", "ORDERS", "--as", "BACK", "--seq", "..3")
    assert "3 messages" in done.stdout
    assert run("restore", "ORDERS", "--seq", "5").exit_code == 2
    assert run("restore", "ORDERS", "--seq", "5..4").exit_code == 2
    assert run("restore", "ORDERS", "--offset", "1..2").exit_code == 2
    done = run("restore", "ORDERS")
    assert "27 messages" not in done.stdout
    assert "the next pass would remove of these" in done.stdout


def test_neither_a_bringing_back_nor_what_it_repaired_is_undone(warehouse: Warehouse) -> None:
    gone(warehouse)
    [applied] = [
        record["run"] for record in warehouse.history(["ORDERS"]) if record["kind"] == "apply"
    ]
    run = warehouse.stream("ORDERS").restore(wanted=MessageRange(last=3)).run
    with pytest.raises(RefusedError, match="again, as after a restore from an archive"):
        warehouse.undo(applied)
    with pytest.raises(UsageError, match="removed nothing"):
        warehouse.undo(str(run))


@pytest.mark.parametrize("record", ["kept", "reclaimed", "damaged"])
@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_markers_that_an_undo_withdrew_stay_away(
    tmp_path: Path, format_: str, record: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A roll-up archives the file of the markers; the undo of their pass withdraws the others."""
    settings: dict[str, Any] = {
        "max_age": "60s",
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": "1h",
        "allow_rollup_hdrs": True,
        "archive": "archive",
    }
    warehouse = real_warehouse(tmp_path, format_, **settings)
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, even_segments(1, 10))
    report = stream.plan().apply()
    assert (report.removed_messages, report.markers) == (10, 3)
    assert seqs(held(warehouse)) == [11, 12, 13]
    stream.publish([{"subject": "s.0", "headers": {"Nats-Rollup": "sub"}, "data": "x"}])
    warehouse.undo(report.run)
    assert seqs(held(warehouse)) == [*range(1, 11), 14]
    if record == "reclaimed":
        time.sleep(TICK_S)
        warehouse.reclaim().apply()
        assert list(Path(stream.opened.root).glob("_retention/reports/*.ranges.arrow")) == []
    if record == "damaged":
        [undo] = [run["run"] for run in stream.history() if run["kind"] == "undo"]
        [ranges] = Path(stream.opened.root).glob(f"_retention/reports/{undo}.ranges.arrow")
        ranges.write_bytes(ranges.read_bytes()[:-9])
    # The roll-up removed the marker of s.0, and an archive restores what runs removed.
    back = [11, 12, 13] if record == "damaged" else [12]
    assert stream.restore().messages == len(back)
    assert ("withdrew may come back" in caplog.text) == (record == "damaged")
    assert seqs(held(warehouse)) == [*range(1, 11), *back, 14]
    assert stream.restore().messages == 0


RANGES = st.lists(st.sets(st.integers(0, 40), min_size=1), min_size=1, max_size=5)


@given(
    copies=RANGES,
    live=st.lists(st.sets(st.integers(0, 40), min_size=1), max_size=3),
    withdrawn=st.sets(st.integers(0, 40), max_size=4),
    data=st.data(),
)
def test_each_sequence_comes_back_once_and_only_if_it_is_not_there(
    copies: Sequence[set[int]],
    live: Sequence[set[int]],
    withdrawn: set[int],
    data: st.DataObject,
) -> None:
    first, last = sorted(data.draw(st.tuples(st.integers(0, 40), st.integers(0, 40))))
    hidden = [data.draw(st.sets(st.sampled_from(sorted(numbers)))) for numbers in copies]
    rows = {f"copy-{at}": sorted(numbers) for at, numbers in enumerate(copies)}
    rows |= {f"live-{at}": sorted(numbers) for at, numbers in enumerate(live)}
    archived = [
        ArchivedFile(
            f"copy-{at}",
            0,
            0,
            1,
            "",
            len(numbers - gone_),
            1,
            min(numbers),
            max(numbers),
            0,
            0,
            {},
            [[seq, seq] for seq in sorted(gone_)],
        )
        for at, (numbers, gone_) in enumerate(zip(copies, hidden, strict=True))
    ]
    there = [
        StoredFile(DataFile(f"live-{at}", 0, 0, "", ""), min(numbers), max(numbers))
        for at, numbers in enumerate(live)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(select, "_seqs", lambda file: np.array(rows[file.path], dtype=int))
        wanted = MessageRange(first=first, last=last)
        away = np.array([[seq, seq] for seq in sorted(withdrawn)], dtype=int).reshape(-1, 2)
        selected, already = select_parts("", archived, there, wanted, {0: away})
    back: list[int] = []
    for part in selected:
        brought = [
            seq for seq in rows[part.copy.path] if first <= seq <= last or part.removed is None
        ]
        if part.removed is None:
            brought = [seq for seq in brought if [seq, seq] not in part.copy.hidden]
        else:
            brought = [
                seq
                for seq in rows[part.copy.path]
                if not any(low <= seq <= high for low, high in part.removed.tolist())
            ]
        assert len(brought) == part.messages
        back += brought
    visible = [numbers - gone_ for numbers, gone_ in zip(copies, hidden, strict=True)]
    inside = {seq for numbers in visible for seq in numbers if first <= seq <= last}
    requested = inside - withdrawn
    assert sorted(back) == sorted(requested - set().union(*live))
    assert already >= len(requested & set().union(*live))


def test_manifests_say_what_was_removed(warehouse: Warehouse) -> None:
    gone(warehouse)
    [manifest] = read_manifests(str(directory(warehouse)))
    assert sum(file.by_rule["max_age"] for file in manifest.content.files) == 25
