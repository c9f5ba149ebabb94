from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply import archive
from retention.errors import DamagedError, StalePlanError, VerificationError
from retention.plan.planfile import load_plans
from retention.storage.crash_points import Step
from tests.support.kills import killed_at
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = START + 100 * SECOND
AS_OF = START + 85 * SECOND


@pytest.fixture(params=["delta", "parquet"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """As of `AS_OF`, two segments are removed, a third loses some messages, a fourth is kept."""
    rules: dict[str, Any] = {"max_age": "60s", "archive": "archive", "allow_rollup_hdrs": True}
    found = warehouse_with(tmp_path / "w", request.param, NOW, **rules)
    lay(found.stream("ORDERS").opened, even_segments(4, 10))
    return found


def archived(warehouse: Warehouse) -> dict[str, Path]:
    """The copies, by their paths in the table."""
    place = Path(warehouse.location, "archive", "ORDERS")
    return {
        str(path.relative_to(messages)): path
        for messages in place.glob("*/messages")
        for path in messages.rglob("*.parquet")
    }


def manifests(warehouse: Warehouse) -> list[dict[str, Any]]:
    found = Path(warehouse.location, "archive", "ORDERS").glob("*/manifests/*.json")
    return [json.loads(path.read_text()) for path in found]


def seqs(warehouse: Warehouse) -> list[int]:
    tables = warehouse.stream("ORDERS").messages()
    return [seq for table in tables for seq in table["seq"].to_pylist()]


def live(warehouse: Warehouse) -> dict[str, bytes]:
    store = warehouse.stream("ORDERS").opened.store
    files = store.data_files(store.snapshot().files)
    return {file.path: Path(file.location).read_bytes() for file in files}


def test_what_goes_is_there_byte_for_byte_and_named(warehouse: Warehouse) -> None:
    before = live(warehouse)
    plan = warehouse.stream("ORDERS").plan(AS_OF)
    assert "removed messages are copied to" in repr(plan)
    report = plan.apply()
    gone = {path: content for path, content in before.items() if path not in live(warehouse)}
    assert len(gone) == 3
    assert {path: found.read_bytes() for path, found in archived(warehouse).items()} == gone
    [manifest] = manifests(warehouse)
    assert manifest["plan_id"] == report.plan_id
    assert manifest["by_rule"] == report.by_rule == {"max_age": 25}
    assert manifest["origin"]["stream"] == "ORDERS"
    for one in manifest["files"]:
        assert one["sha256"] == hashlib.sha256(gone[one["path"]]).hexdigest()
        assert one["file_bytes"] == len(gone[one["path"]])
    assert [(one["min_seq"], one["max_seq"], one["by_rule"]) for one in manifest["files"]] == [
        (1, 10, {"max_age": 10}),
        (11, 20, {"max_age": 10}),
        (21, 30, {"max_age": 5}),
    ]
    assert report.archived is not None
    assert report.archived["files"] == 3
    assert "copied 3 files (" in repr(report)
    [record] = [one for one in warehouse.history(["ORDERS"]) if one["kind"] == "apply"]
    assert record["archived"] == report.archived


def test_nothing_goes_where_nothing_can_be_copied(warehouse: Warehouse) -> None:
    before = live(warehouse)
    Path(warehouse.location, "archive").write_text("a file is in the way")
    with pytest.raises(OSError, match="archive"):
        warehouse.stream("ORDERS").plan(AS_OF).apply()
    assert live(warehouse) == before


def test_nothing_goes_when_a_copy_is_another_file(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = live(warehouse)
    monkeypatch.setattr(archive, "digest_of", lambda _: "another")
    with pytest.raises(VerificationError, match=r"this copy of .* differs when read") as refused:
        warehouse.stream("ORDERS").plan(AS_OF).apply()
    assert refused.value.exit_code == 6
    assert live(warehouse) == before
    assert manifests(warehouse) == []


def test_a_file_that_is_not_what_was_committed_stays(warehouse: Warehouse) -> None:
    store = warehouse.stream("ORDERS").opened.store
    first = store.data_files(store.snapshot().files.sort_by("segment"))[0]
    place = Path(first.location)
    place.write_bytes(b"\0" * len(place.read_bytes()))
    with pytest.raises(DamagedError):
        warehouse.stream("ORDERS").plan(AS_OF).apply()
    assert len(live(warehouse)) == 4
    assert manifests(warehouse) == []


def test_a_second_run_uses_what_the_first_has_copied(warehouse: Warehouse) -> None:
    with killed_at(Step.ARCHIVE_TOLD):
        warehouse.stream("ORDERS").plan(AS_OF).apply()
    assert len(live(warehouse)) == 4
    times = {path: found.stat().st_mtime_ns for path, found in archived(warehouse).items()}
    assert len(times) == 3
    warehouse.stream("ORDERS").plan(AS_OF + 1).apply()
    assert {path: found.stat().st_mtime_ns for path, found in archived(warehouse).items()} == times


def test_a_damaged_copy_of_an_earlier_run_is_replaced(warehouse: Warehouse) -> None:
    report = warehouse.stream("ORDERS").plan(AS_OF).apply()
    warehouse.undo(report.run)
    [first, *_] = archived(warehouse).values()
    whole = first.read_bytes()
    first.write_bytes(whole[:-1] + b"?")
    warehouse.stream("ORDERS").plan(AS_OF + 1).apply()
    assert first.read_bytes() == whole


def test_a_plan_says_where_it_copies_to(warehouse: Warehouse, tmp_path: Path) -> None:
    stream = warehouse.stream("ORDERS")
    plans = {"pass": stream.plan(AS_OF), "purge": stream.purge()}
    for name, plan in plans.items():
        plan.save(tmp_path / name)
    config = Path(warehouse.location, "retention.yaml")
    config.write_text(
        config.read_text().replace('"archive"', '"elsewhere"').replace('"elsewhere":', '"archive":')
    )
    later = open_warehouse(config, engine="local", clock=lambda: NOW)
    for name in plans:
        [loaded] = load_plans(str(tmp_path / name))
        [outcome] = later.apply_plans([loaded])
        assert isinstance(outcome.error, StalePlanError)
    assert len(live(warehouse)) == 4


def test_a_removal_by_hand_and_a_roll_up_are_copied_as_well(warehouse: Warehouse) -> None:
    stream = warehouse.stream("ORDERS")
    stream.delete(3).apply()
    assert len(archived(warehouse)) == 1
    line = {"subject": "s.1", "data": "x", "headers": {"Nats-Rollup": "sub"}}
    stream.publish([json.dumps(line)])
    assert len(archived(warehouse)) > 1
    told = {
        seq
        for place in archived(warehouse).values()
        for seq in pq.read_table(place, columns=["seq"], partitioning=None)["seq"].to_pylist()
    }
    assert set(range(1, 41)) - set(seqs(warehouse)) <= told


def test_what_shall_be_nowhere_is_not_copied(warehouse: Warehouse) -> None:
    assert warehouse.stream("ORDERS").delete(3, erase=True).apply().is_done
    assert not [*Path(warehouse.location, "archive").rglob("*.parquet")]


def test_topics_and_their_purges_are_copied_apart_by_epoch(tmp_path: Path) -> None:
    with_logs(tmp_path, "delta")
    place = tmp_path / "retention.yaml"
    config = json.loads(place.read_text())
    config["defaults"]["archive"] = "../kept"
    place.write_text(json.dumps(config))
    warehouse = open_warehouse(place, engine="local", clock=lambda: NOW)
    import_logs(warehouse, tmp_path)
    topic = warehouse.topic(NAME)
    topic.delete_segments(1, 1).apply()
    topic.purge().apply()
    import_logs(warehouse, tmp_path)
    topic.purge().apply()
    kept = tmp_path.parent / "kept" / NAME
    counts = sorted(len(list(one.rglob("*.parquet"))) for one in kept.iterdir())
    assert counts == [5, 5]
