"""Restored tables, cleaned-up logs, lost logs: absence does not mean "never happened"."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from retention.api.warehouse import Warehouse
from retention.doctor.streams import check_stream
from retention.errors import DamagedError, UsageError
from retention.history.runs import History, history_of
from retention.storage.checksum import verified, with_checksum
from retention.storage.crash_points import Step
from retention.stores.lease import KINDS
from tests.support.kills import killed_at
from tests.support.sandboxes import NOW, ORDERS, lines, opened

FORMATS = ("delta", "parquet")
TRIMMED = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 4}


def publish(warehouse: Warehouse, count: int) -> list[int]:
    """Publish current messages; returns their sequences."""
    done = warehouse.new_stream("ORDERS").publish(lines(count, first_ns=NOW))
    return [ack.seq for ack in done.acks()]


def applied(warehouse: Warehouse) -> str:
    """The name of a successful pass."""
    (outcome,) = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    return outcome.value.run


def root_of(folder: Path) -> Path:
    return folder / "streams" / "ORDERS"


def put_back(copy: Path, place: Path) -> None:
    shutil.rmtree(place)
    shutil.copytree(copy, place)


@pytest.mark.parametrize("format_", FORMATS)
def test_sequences_of_a_table_that_was_put_back_are_not_given_out_again(
    tmp_path: Path, format_: str
) -> None:
    folder = tmp_path / "lake"
    warehouse = opened(folder, ORDERS, format=format_)
    assert publish(warehouse, 4) == [1, 2, 3, 4]
    applied(warehouse)
    shutil.copytree(root_of(folder), tmp_path / "copy")
    assert publish(warehouse, 4) == [5, 6, 7, 8]
    applied(warehouse)
    for _ in range(2):
        put_back(tmp_path / "copy", root_of(folder))
        applied(warehouse)
        assert warehouse.stream("ORDERS").state().last_seq == 8
    assert publish(warehouse, 1) == [9]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_stream_that_is_gone_goes_on_behind_its_run_history(tmp_path: Path, format_: str) -> None:
    warehouse = opened(tmp_path, ORDERS, format=format_)
    publish(warehouse, 4)
    applied(warehouse)
    shutil.rmtree(root_of(tmp_path))
    assert warehouse.stream("ORDERS").state().first_seq == 5
    assert publish(warehouse, 1) == [5]


def test_the_floor_is_the_highest_of_records_from_before_it_was_kept(tmp_path: Path) -> None:
    warehouse = opened(tmp_path, ORDERS)
    publish(warehouse, 8)
    applied(warehouse)
    history = history_of(str(tmp_path), "ORDERS")
    for seq in (30, 3):
        record = {"kind": "apply", "status": "done", "as_of_ns": NOW, "next_seq": {"0": seq}}
        place = Path(history.directory, f"{history.name_run(NOW)}.done.json")
        place.write_text(json.dumps({"run": place.name.removesuffix(".done.json"), **record}))
    assert publish(warehouse, 1) == [30]
    applied(warehouse)
    newest = next(history.outcomes())
    assert newest.floor == {0: 31}


def status_of(history: History, run: str) -> str | None:
    outcome = history.done(run)
    return None if outcome is None else outcome.status


def killed_behind_its_commit(folder: Path, run: str) -> None:
    Path(folder, "runs", "ORDERS", f"{run}.done.json").unlink()


def clean_up(folder: Path) -> None:
    """Apply log retention: write a checkpoint of the newest state, and delete earlier entries."""
    messages = root_of(folder) / "messages"
    table = DeltaTable(str(messages))
    table.create_checkpoint()
    for entry in (messages / "_delta_log").glob("*.json"):
        if int(entry.name.partition(".")[0]) < table.version():
            entry.unlink()


def cleaned_up_behind(folder: Path, run: str, warehouse: Warehouse) -> None:
    killed_behind_its_commit(folder, run)
    publish(warehouse, 1)
    clean_up(folder)
    publish(warehouse, 1)


def test_a_killed_run_of_which_the_log_was_cleaned_up_is_known_to_have_committed(
    tmp_path: Path,
) -> None:
    warehouse = opened(tmp_path, TRIMMED, format="delta")
    publish(warehouse, 4)
    publish(warehouse, 4)
    run = applied(warehouse)
    cleaned_up_behind(tmp_path, run, warehouse)
    applied(warehouse)
    assert status_of(history_of(str(tmp_path), "ORDERS"), run) == "done"


def test_a_run_that_was_killed_before_its_commit_is_abandoned_although_the_log_was_cleaned_up(
    tmp_path: Path,
) -> None:
    warehouse = opened(tmp_path, TRIMMED, format="delta")
    publish(warehouse, 4)
    publish(warehouse, 4)
    history = history_of(str(tmp_path), "ORDERS")
    first = applied(warehouse)
    begun = history.begun(first)
    assert begun is not None
    later = history.name_run(NOW)
    history.begin(begun.updated(run=later))
    publish(warehouse, 1)
    clean_up(tmp_path)
    publish(warehouse, 1)
    applied(warehouse)
    assert status_of(history, later) == "abandoned"


def begun_by_earlier_code(folder: Path, run: str) -> None:
    """A record without the run's inputs, in a log without the last run's instant."""
    place = Path(folder, "runs", "ORDERS", f"{run}.begun.json")
    record = verified(json.loads(place.read_text()))
    del record["basis"]
    place.write_text(json.dumps(with_checksum(record)))


def test_a_run_of_earlier_code_whose_entry_is_gone_is_undone_as_its_files_tell(
    tmp_path: Path,
) -> None:
    warehouse = opened(tmp_path, TRIMMED, format="delta")
    publish(warehouse, 4)
    publish(warehouse, 4)
    run = applied(warehouse)
    begun_by_earlier_code(tmp_path, run)
    cleaned_up_behind(tmp_path, run, warehouse)
    publish(warehouse, 4)
    history = history_of(str(tmp_path), "ORDERS")
    restored = warehouse.undo(run)
    assert status_of(history, run) == "unknown"
    assert restored["restored_messages"] == 4
    assert warehouse.stream("ORDERS").state().first_seq == 1
    with pytest.raises(UsageError, match="was undone already"):
        warehouse.undo(run)


def test_a_run_whose_table_was_put_back_is_unknown_and_not_undone(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    warehouse = opened(folder, TRIMMED, format="delta")
    publish(warehouse, 4)
    shutil.copytree(root_of(folder) / "messages", tmp_path / "copy")
    publish(warehouse, 4)
    run = applied(warehouse)
    killed_behind_its_commit(folder, run)
    put_back(tmp_path / "copy", root_of(folder) / "messages")
    with pytest.raises(UsageError, match="nothing to undo"):
        warehouse.undo(run)
    history = history_of(str(folder), "ORDERS")
    assert status_of(history, run) == "unknown"
    assert publish(warehouse, 1) == [9]
    assert history.last_as_of_ns() == NOW


def log_of(folder: Path, format_: str) -> Path:
    within = "messages/_delta_log" if format_ == "delta" else "_retention/log"
    return root_of(folder) / within


def as_earlier_code_left_it(folder: Path) -> None:
    place = root_of(folder) / "_retention" / "format.json"
    said = json.loads(place.read_text())
    del said["made"]
    place.write_text(json.dumps(said))


def without_the_mark(folder: Path) -> None:
    (root_of(folder) / "_retention" / "format.json").unlink()


def as_it_is(_: Path) -> None:
    """The engine itself records the creation of the table."""


@pytest.mark.parametrize("left", [as_it_is, as_earlier_code_left_it, without_the_mark])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_whose_log_is_gone_is_not_made_anew(
    tmp_path: Path, format_: str, left: Callable[[Path], None]
) -> None:
    warehouse = opened(tmp_path, TRIMMED, format=format_)
    publish(warehouse, 4)
    publish(warehouse, 4)
    run = applied(warehouse)
    log = log_of(tmp_path, format_)
    log.rename(tmp_path / "log")
    left(tmp_path)
    before = sorted(root_of(tmp_path).rglob("*"))
    orders = warehouse.stream("ORDERS")
    for act in (
        lambda: publish(warehouse, 1),
        orders.state,
        orders.plan,
        orders.purge,
        lambda: list(orders.messages()),
        lambda: warehouse.undo(run),
    ):
        with pytest.raises(DamagedError, match="the log of stream ORDERS is gone") as refused:
            act()
        assert "restore that directory from a copy" in str(refused.value)
    (outcome,) = warehouse.apply()
    assert outcome.exit_code == 6
    (finding,) = [one for one in check_stream(orders.opened) if one.check == "table"]
    assert "the log of stream ORDERS is gone" in finding.detail
    leases = {root_of(tmp_path) / "_retention" / f"{kind}.lease" for kind in KINDS}
    assert {*root_of(tmp_path).rglob("*")} - leases == {*before} - leases
    (tmp_path / "log").rename(log)
    assert publish(warehouse, 1) == [9]


@pytest.mark.parametrize("step", [Step.FORMAT_WRITTEN, Step.TABLE_MADE, Step.MADE_NOTED])
@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_that_was_being_made_when_its_maker_died_is_made(
    tmp_path: Path, format_: str, step: Step
) -> None:
    warehouse = opened(tmp_path, ORDERS, format=format_)
    with killed_at(step):
        publish(warehouse, 1)
    assert publish(warehouse, 1) == [1]
    said = json.loads((root_of(tmp_path) / "_retention" / "format.json").read_text())
    assert said["made"] is True
