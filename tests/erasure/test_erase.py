from __future__ import annotations

import gzip
import json
import re
import secrets
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.api.warehouse import open_warehouse
from retention.apply import erasure_run
from retention.apply.erasure_run import erasures_of
from retention.apply.erasure_survey import survey_erasure
from retention.core.units import SECOND
from retention.erasure import copies
from retention.erasure.record import ErasureRecord
from retention.errors import (
    DamagedError,
    MissingMessageError,
    RefusedError,
    RetentionError,
    StorageError,
    UsageError,
    VerificationError,
)
from retention.inspect.measures import measure
from retention.rules.erase import erased_messages
from retention.storage import files
from retention.storage.crash_points import Step
from tests.support.command_line import invoke
from tests.support.kills import killed_at
from tests.support.strangers_search import hiding_places

NOW = 1_780_000_000 * SECOND
STORES = ["delta", "parquet", "vectors"]
EVE = "orders.eve-4f0c2b7d9a31"
TOKENS = [
    b"eve-4f0c2b7d9a31",
    b"payload-8c1e5a7733d0",
    b"header-5b21d9e0c4f7",
    b"message-id-c90ad1b7e2",
]
STORE = pytest.mark.parametrize("store", STORES)


class World:
    """A stream with the messages of a person, in live, removed, compacted and restored files."""

    def __init__(self, folder: Path, store: str, **settings: Any) -> None:
        self.folder, self.now = folder, NOW
        form = "parquet" if store == "parquet" else "delta"
        stream = {
            "name": "ORDERS",
            "subjects": ["orders.>"],
            "duplicate_window": "30d",
            **({"vectors": True} if store == "vectors" else {}),
            **settings,
        }
        config = {"defaults": {"format": form}, "streams": [stream]}
        (folder / "retention.yaml").write_text(json.dumps(config))
        self.warehouse = open_warehouse(folder / "retention.yaml", engine="local", clock=self.clock)
        self.stream = self.warehouse.new_stream("ORDERS")

    def clock(self) -> int:
        self.now += SECOND
        return self.now

    def publish(self, count: int) -> None:
        lines = []
        for number in range(count):
            eve = {
                "subject": EVE,
                "data": f"payload-8c1e5a7733d0 {number}",
                "headers": {
                    "X-Name": "header-5b21d9e0c4f7",
                    "Nats-Msg-Id": f"message-id-c90ad1b7e2{secrets.token_hex(4)}",
                },
            }
            lines += [eve, {"subject": "orders.bob", "data": "other" * 9}]
        self.stream.publish(json.dumps(line).encode() for line in lines)

    def left(self) -> list[tuple[str, str]]:
        return hiding_places(str(self.folder), TOKENS)

    def subjects(self) -> list[str]:
        return [row["subject"] for table in self.stream.messages() for row in table.to_pylist()]


def lived_in(folder: Path, store: str) -> World:
    """A stream on which much was done with the messages of a person."""
    world = World(folder, store)
    for _ in range(4):
        world.publish(3)
    hold = world.warehouse.hold("ORDERS", subject=EVE, reason=f"case of {EVE}", owner="legal")
    world.warehouse.release_hold(hold.id, reason="closed")
    world.stream.purge(EVE, keep=10).apply()
    report = world.stream.purge(EVE, keep=8).apply()
    world.warehouse.undo(report.run)
    world.stream.delete(15).apply()
    world.stream.compact().apply()
    world.publish(1)
    world.stream.consumers.add({"durable_name": "reader", "filter_subject": EVE})
    world.stream.consumers.remove("reader")
    world.stream.verify()
    return world


@STORE
def test_no_file_has_what_was_erased(tmp_path: Path, store: str) -> None:
    world = lived_in(tmp_path, store)
    assert len({path for path, _ in world.left()}) > 5
    others = world.subjects().count("orders.bob")
    report = world.stream.erase(EVE, reason="request 7 of eve-4f0c2b7d9a31").apply()
    assert report.is_done, report
    assert world.left() == []
    assert world.subjects() == ["orders.bob"] * others
    assert world.stream.verify().damages == ()
    assert {record["kind"] for record in world.stream.history()} >= {"erase", "purge", "undo"}


@STORE
def test_rows_that_only_a_vector_hides_are_gone(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    world.publish(20)
    world.stream.delete(3).apply()
    seqs = [row["seq"] for table in world.stream.messages() for row in table.to_pylist()]
    world.stream.erase(seqs=3, reason="request 7").apply()
    assert [row["seq"] for t in world.stream.messages() for row in t.to_pylist()] == seqs
    assert hiding_places(str(tmp_path), [b"payload-8c1e5a7733d0 1\n"]) == []
    with pytest.raises(MissingMessageError, match="no message 99"):
        world.stream.erase(seqs=[5, 99], reason="request 8")


@STORE
def test_a_legal_hold_wins(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    world.publish(4)
    hold = world.warehouse.hold("ORDERS", subject=EVE, to_seq=1, reason="case 12", owner="J. Doe")
    before = world.left()
    with pytest.raises(RefusedError, match=f"{hold.id} of J. Doe .case 12. keeps messages"):
        world.stream.erase(EVE, reason="request 7")
    assert world.left() == before
    assert world.stream.erase(seqs=3, reason="request 8").apply().is_done
    world.warehouse.release_hold(hold.id, reason="closed")
    assert world.stream.erase(EVE, reason="request 7").apply().is_done
    assert world.left() == []


@STORE
def test_a_held_message_in_a_removed_file_is_kept(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    world.publish(4)
    world.stream.delete(1).apply()
    world.warehouse.hold("ORDERS", to_seq=1, reason="case 12")
    with pytest.raises(RefusedError, match="a legal hold wins"):
        world.stream.erase(EVE, reason="request 7")


@STORE
def test_what_comes_after_the_request_stays(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    world.publish(2)
    note = tmp_path / "note.txt"
    note.write_text(EVE)
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert not report.is_done
    assert "unfinished erasure" in repr(world.stream.state())
    assert len(world.stream.state().as_json()["unfinished_erasures"]) == 1
    assert measure(world.stream.opened, world.clock()).unfinished_erasures == 1
    assert [trace.location for trace in report.traces] == [str(note)]
    line = {"subject": EVE, "data": "new" * 9}
    world.stream.publish([json.dumps(line).encode()])
    [again] = world.stream.resume_erasures()
    assert again.is_done
    assert world.subjects().count(EVE) == 1


def test_what_stays_is_read_once_for_each_version_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "delta")
    world.publish(2)
    note = tmp_path / "note.txt"
    note.write_text(EVE)
    report = world.stream.erase(EVE, reason="request 7").apply()
    with monkeypatch.context() as patch:
        patch.setattr(erasure_run, "survivors", lambda *_: 1 // 0)
        [again] = world.stream.resume_erasures()
        assert again.record.traces == report.record.traces
        world.publish(1)
        with pytest.raises(ZeroDivisionError):
            world.stream.resume_erasures()
    note.unlink()
    [report] = world.stream.resume_erasures()
    assert report.is_done, report


@STORE
def test_the_same_request_again_takes_what_came_since(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    world.publish(2)
    place = tmp_path / f"about {EVE}.txt"
    place.write_text("payload-8c1e5a7733d0 1")
    assert not world.stream.erase(EVE, reason="request 7").apply().is_done
    world.publish(1)
    again = world.stream.erase(EVE, reason="request 7").apply()
    assert (again.removed_messages, again.is_done) == (1, False)
    place.unlink()
    assert [report.is_done for report in world.stream.resume_erasures()][-1:] == [True]
    assert all(report.is_done for report in world.stream.erasures())
    assert (world.subjects().count(EVE), world.left()) == (0, [])


def test_an_undo_waits_for_an_unfinished_erasure(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(2)
    run = world.stream.purge(EVE, keep=1).apply().run
    (tmp_path / "note.txt").write_text(EVE)
    assert not world.stream.erase(EVE, reason="request 7").apply().is_done
    with pytest.raises(RefusedError, match="which is unfinished, takes some of its messages"):
        world.warehouse.undo(run)


def test_a_file_that_the_storage_does_not_read_is_not_taken_for_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "delta")
    world.publish(2)
    world.stream.purge().apply()
    before = sorted((tmp_path / "streams").rglob("*.parquet"))

    def failing(location: str, _columns: object) -> None:
        raise StorageError(f"{location}: the storage failed")

    request = world.stream.erase(EVE, reason="request 7")
    with monkeypatch.context() as patched:
        patched.setattr(copies, "rows_of", failing)
        with pytest.raises(StorageError):
            request.apply()
    assert sorted((tmp_path / "streams").rglob("*.parquet")) == before
    assert world.stream.erase(EVE, reason="request 7").apply().is_done


def test_an_unfinished_erasure_is_finished_by_any_run(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(2)
    note = tmp_path / "note.txt"
    note.write_text(EVE)
    world.stream.erase(EVE, reason="request 7", by="2026-12-24").apply()
    [record] = erasures_of(world.stream.opened).all()
    assert record.key is not None
    assert files.length(erasures_of(world.stream.opened).needles(record.id))
    note.unlink()
    world.stream.compact().apply()
    world.stream.purge("orders.nobody").apply()
    [report] = world.stream.erasures()
    assert report.is_done
    assert report.record.key is None
    assert files.length(erasures_of(world.stream.opened).needles(record.id)) is None
    assert world.left() == []


@STORE
def test_a_later_publish_with_an_erased_id_is_stored(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    line = {"subject": EVE, "data": "x", "headers": {"Nats-Msg-Id": "one"}}
    first = world.stream.publish([json.dumps(line).encode()])
    world.stream.delete(1).apply()
    assert [ack.duplicate for ack in world.stream.publish([json.dumps(line).encode()]).acks()] == [
        True
    ]
    assert [ack.seq for ack in first.acks()] == [1]
    world.stream.erase(seqs=1, reason="request 7").apply()
    [ack] = world.stream.publish([json.dumps(line).encode()]).acks()
    assert (ack.seq, ack.duplicate) == (2, False)


def test_the_same_erasure_again_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, "delta")
    world.publish(2)
    first = world.stream.erase(seqs=[1, 3], reason="request 7").apply()
    again = world.stream.erase(seqs=[1, 3], reason="request 7").apply()
    assert (again.record, again.run) == (first.record, first.run)
    assert len(world.stream.erasures()) == 1


def test_runs_that_lose_their_undo_are_named(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(3)
    lost = world.stream.delete(1).apply()
    planned = world.stream.erase(EVE, reason="request 7")
    assert planned.plan.lost_undos == (lost.run,)
    assert lost.run in repr(planned)
    report = planned.apply()
    assert report.record.lost_undos == [lost.run]
    for run, why in (
        (lost.run, rf"\(erasure {report.record.id} deleted them\)"),
        (str(report.run), "erased"),
    ):
        with pytest.raises(RetentionError, match=why):
            world.warehouse.undo(run)


def _without(name: str, answer: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(erasure_run, name, lambda *_, **__: answer)


@pytest.mark.parametrize(
    "step", ["dead_copies", "orphaned_digests", "erase_arguments", "conceal_holds"]
)
def test_a_step_that_is_left_out_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    world = lived_in(tmp_path, "parquet")
    _without(step, [])(monkeypatch)
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert not report.is_done
    assert world.left()
    monkeypatch.undo()
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert world.left() == []


def test_a_removal_that_is_left_out_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = lived_in(tmp_path, "delta")
    monkeypatch.setattr(
        erasure_run,
        "_removed",
        lambda opened, wanted, record, engines, _: (
            record,
            survey_erasure(opened, wanted.request, engines),
        ),
    )
    with pytest.raises(VerificationError, match="the table still has"):
        world.stream.erase(EVE, reason="request 7").apply()
    monkeypatch.undo()
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert world.left() == []


def test_a_file_of_the_stream_that_cannot_be_decoded_keeps_it_unfinished(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(2)
    own = tmp_path / "streams/ORDERS/_retention/elsewhere/broken.gz"
    other = tmp_path / "note.gz"
    for place in (own, other):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(gzip.compress(b"something" * 99)[:-20])
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert not report.is_done
    assert report.record.unread == [str(own)]
    assert report.undecodable == (str(other), str(own))
    assert f"{own}: has to be readable" in repr(report)
    listed = invoke(["--config", str(tmp_path / "retention.yaml"), "erase", "--status"])
    assert "1 file cannot be read" in listed.output
    own.unlink()
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert report.as_json()["undecodable"] == []
    assert report.record.unread == []


@STORE
@pytest.mark.parametrize("rows", ["whole", "torn"])
def test_a_file_that_a_killed_writer_left_is_deleted(tmp_path: Path, store: str, rows: str) -> None:
    world = World(tmp_path, store)
    world.publish(2)
    [live, *_] = (tmp_path / "streams/ORDERS/messages").rglob("*.parquet")
    content = live.read_bytes()
    name = f".{uuid.uuid4().hex}.parquet.{uuid.uuid4().hex}.tmp"
    left = tmp_path / "streams/ORDERS/_retention/staging" / live.parent.name / name
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(content if rows == "whole" else content[:-20])
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert report.is_done
    assert not left.exists()
    assert world.left() == []


def test_a_path_in_a_report_does_not_repeat_what_was_erased(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(2)
    place = tmp_path / "exports" / f"about {EVE}" / "part.txt"
    place.parent.mkdir(parents=True)
    place.write_text("nothing")
    (tmp_path / "exports.zip").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "exports.zip", "w") as archive:
        archive.writestr(f"{EVE}.txt", f"see {EVE}")
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert not report.is_done
    shown = sorted({Path(each.location).relative_to(tmp_path).as_posix() for each in report.traces})
    assert re.fullmatch(r"exports.zip exports/erased:[0-9a-f]{64}/part.txt", " ".join(shown))
    place.unlink()
    place.parent.rmdir()
    assert EVE not in repr(report) + json.dumps(report.as_json())
    assert [path for path, _ in world.left()] == ["exports.zip"] * len(world.left())
    (tmp_path / "exports.zip").unlink()
    [report] = world.stream.resume_erasures()
    assert report.is_done
    assert world.left() == []


def test_known_traces_are_looked_at_before_everything_else(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(2)
    notes = [tmp_path / "note.txt", tmp_path / "other.txt"]
    for note in notes:
        note.write_text(EVE)
    first = world.stream.erase(EVE, reason="request 7").apply()
    assert first.searched_files > 10
    notes[0].unlink()
    [report] = world.stream.resume_erasures()
    assert ([each.location for each in report.traces], report.searched_files) == (
        [str(notes[1])],
        1,
    )
    notes[0].write_text(EVE)
    notes[1].unlink()
    [report] = world.stream.resume_erasures()
    assert [each.location for each in report.traces] == [str(notes[0])]
    notes[0].unlink()
    [report] = world.stream.resume_erasures()
    assert report.is_done


def test_many_subjects_come_from_a_file(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    lines = [
        {"subject": f"orders.person-{n:06d}", "data": f"data of person {n:06d}"} for n in range(50)
    ]
    world.stream.publish(json.dumps(line).encode() for line in lines)
    given = tmp_path.parent / f"{tmp_path.name}.jsonl"
    named = [{"subject": f"orders.person-{n:06d}"} for n in range(0, 50, 2)]
    given.write_text("\n".join(json.dumps(line) for line in named) + "\norders.person-000001\n")
    arguments = ["--config", str(tmp_path / "retention.yaml"), "erase", "ORDERS"]
    done = invoke([*arguments, "--from-file", str(given), "--reason", "requests", "--yes"])
    assert done.exit_code == 0, done.output
    assert "erased 26 live messages" in done.output
    assert len(world.subjects()) == 24
    assert hiding_places(str(tmp_path), [b"person 000002", b"person-000001"]) == []
    given.write_text("[1]\n")
    refused = invoke([*arguments, "--from-file", str(given), "--reason", "requests", "--yes"])
    assert refused.exit_code == 2
    assert "line 1 names neither" in refused.output


def test_a_trace_makes_the_command_fail_until_it_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path, "delta")
    world.publish(2)
    note = tmp_path / "note.txt"
    note.write_text(f"see {EVE}")
    arguments = ["--config", str(tmp_path / "retention.yaml"), "erase", "ORDERS"]
    asked = [*arguments, "--subject", EVE, "--reason", "request 7", "--yes"]
    first = invoke(asked)
    assert first.exit_code == 6
    assert f"{note}: subject" in first.output
    listed = invoke(["--config", str(tmp_path / "retention.yaml"), "erase", "--status"])
    assert "unfinished" in listed.output
    note.write_text("")
    assert invoke(asked).exit_code == 0
    assert invoke([*arguments, "--resume"]).exit_code == 0
    [entry] = json.loads(
        invoke(
            ["--config", str(tmp_path / "retention.yaml"), "erase", "--status", "--format", "json"]
        ).output
    )
    assert entry["state"] == "done"
    assert EVE not in json.dumps(entry)


def test_a_request_names_subjects_or_sequences() -> None:
    wrong: list[tuple[list[str], list[int]]] = [([], []), (["a"], [1]), (["a..b"], []), ([], [-1])]
    for subjects, seqs in wrong:
        with pytest.raises(UsageError):
            erased_messages(subjects, seqs)
    messages = erased_messages(["a.*", "b"], ())
    rows = pa.table({"seq": [1, 2, 3, 4], "subject": ["a.c", "b", "b.c", "a"]})
    assert messages.takes(rows).tolist() == [True, True, False, False]
    assert np.array_equal(erased_messages((), [4, 2]).takes(rows), [False, True, False, True])


def test_an_erasure_needs_a_reason_and_a_table(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    with pytest.raises(UsageError, match="nothing was ever written"):
        world.stream.erase(EVE, reason="request 7")
    with pytest.raises(UsageError, match="reason"):
        world.stream.erase(EVE, reason=" ")


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(1)
    world.stream.erase(EVE, reason="request 7").apply()
    [record] = erasures_of(world.stream.opened).all()
    assert isinstance(record, ErasureRecord)
    place = tmp_path / f"streams/ORDERS/_retention/erasures/{record.id}.json"
    place.write_text(place.read_text().replace("done", "gone"))
    with pytest.raises(DamagedError, match="record of an erasure"):
        world.stream.erasures()
    assert world.stream.state().erasures == (), "a state reads unfinished ones only"
    place.unlink()
    assert world.stream.erase(EVE, reason="request 7").apply().is_done


def test_damaged_needles_are_named_and_made_again(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet")
    world.publish(1)
    with killed_at(Step.ERASURE_RECORDED):
        world.stream.erase(EVE, reason="request 7").apply()
    [needles] = tmp_path.glob("streams/ORDERS/_retention/erasures/*.needles")
    needles.write_bytes(needles.read_bytes()[:-1])
    with pytest.raises(DamagedError, match="delete the record of the same name beside it"):
        world.stream.erase(EVE, reason="request 7").apply()
    needles.with_suffix(".json").unlink()
    assert world.stream.erase(EVE, reason="request 7").apply().is_done
    assert world.left() == []


def test_a_dropped_stream_is_erased_as_well(tmp_path: Path) -> None:
    world = World(tmp_path, "delta")
    world.publish(2)
    world.stream.drop().apply()
    assert world.left()
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert report.is_done
    assert world.left() == []


@STORE
def test_an_earlier_table_of_the_name_is_erased_by_subject_only(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    for _ in range(3):
        world.publish(1)
    world.stream.drop().apply()
    world.publish(1)
    world.stream.erase(seqs=2, reason="request 6").apply()
    assert world.subjects() == [EVE]
    assert world.left(), "sequence 2 of the dropped table is another message"
    report = world.stream.erase(EVE, reason="request 7").apply()
    assert report.is_done
    assert world.left() == []


@STORE
def test_a_legal_hold_that_only_the_configuration_has_yet_wins(tmp_path: Path, store: str) -> None:
    World(tmp_path, store).publish(2)
    world = World(tmp_path, store, holds=[{"reason": "case 42", "to_seq": 1, "owner": "J. Doe"}])
    with pytest.raises(RefusedError, match=r"of J. Doe .case 42. keeps messages"):
        world.stream.erase(EVE, reason="request 7")


@STORE
def test_strings_that_a_removed_message_has_as_well_stay(tmp_path: Path, store: str) -> None:
    world = World(tmp_path, store)
    world.publish(1)
    world.publish(1)
    world.stream.delete(3).apply()
    report = world.stream.erase(seqs=[1], reason="request 7").apply()
    assert report.is_done
    assert report.shared > 0
    assert 1 not in [seq for table in world.stream.messages() for seq in table["seq"].to_pylist()]
