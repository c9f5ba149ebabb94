"""A warehouse that is put back from a backup follows its ledger before it removes anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import open_warehouse
from retention.apply.erasure_run import erasures_of
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.core.units import SECOND
from retention.doctor.streams import check_stream
from retention.engines.select import Engines
from retention.errors import ConfigError, DamagedError, RefusedError, RetentionError
from retention.stores.holds import HoldRecords
from tests.erasure.test_erase import EVE, NOW, STORE, TOKENS
from tests.support.strangers_search import hiding_places

BOB = "orders.bob"


class World:
    """A warehouse with a ledger beside it, and a backup of the warehouse."""

    def __init__(self, folder: Path, store: str = "delta", **settings: Any) -> None:
        self.folder, self.now = folder, NOW
        self.lake, self.ledger, self.backup = folder / "lake", folder / "ledger", folder / "backup"
        self.settings = {
            "name": "ORDERS",
            "subjects": ["orders.>"],
            "format": "parquet" if store == "parquet" else "delta",
            **({"vectors": True} if store == "vectors" else {}),
            **settings,
        }
        self.lake.mkdir()
        self.open()

    def open(self, *, ledger: str | None = "../ledger") -> None:
        """Open the warehouse anew."""
        config = {"streams": [self.settings], **({"ledger": ledger} if ledger else {})}
        (self.lake / "retention.yaml").write_text(json.dumps(config))
        self.warehouse = open_warehouse(
            self.lake / "retention.yaml", engine="local", clock=self.clock
        )
        self.stream = self.warehouse.new_stream("ORDERS")

    def clock(self) -> int:
        self.now += SECOND
        return self.now

    def publish(self, *subjects: str) -> None:
        lines = [
            {
                "subject": subject,
                "data": f"payload-8c1e5a7733d0 {subject}" if subject == EVE else "other" * 9,
                "headers": {"X-Name": "header-5b21d9e0c4f7"} if subject == EVE else {},
            }
            for subject in subjects
        ]
        self.stream.publish(json.dumps(line).encode() for line in lines)

    def back_up(self) -> None:
        shutil.copytree(self.lake, self.backup, symlinks=True)

    def restore(self, *, keep_runs: bool = False) -> None:
        if keep_runs:
            shutil.rmtree(self.lake / "streams")
            shutil.copytree(self.backup / "streams", self.lake / "streams", symlinks=True)
        else:
            shutil.rmtree(self.lake)
            shutil.copytree(self.backup, self.lake, symlinks=True)
        self.open()

    def apply(self) -> None:
        with Engines("local") as engines:
            apply_now(self.stream.opened, self.clock(), engines, Guards())

    def left(self) -> list[tuple[str, str]]:
        return hiding_places(str(self.lake), TOKENS)

    def in_ledger(self) -> list[tuple[str, str]]:
        return hiding_places(str(self.ledger), TOKENS)

    def seqs(self) -> list[int]:
        return [row["seq"] for table in self.stream.messages() for row in table.to_pylist()]

    def holds(self) -> list[str]:
        return [hold.id for hold in self.warehouse.holds()]


@STORE
@pytest.mark.parametrize("keep_runs", [False, True])
def test_what_was_erased_and_held_since_the_backup_is_so_again(
    tmp_path: Path, store: str, *, keep_runs: bool
) -> None:
    world = World(tmp_path, store, max_msgs=2)
    world.publish(EVE, BOB, EVE, BOB, BOB)
    old = world.warehouse.hold("ORDERS", subject=EVE, reason=f"case of {EVE}")
    world.back_up()
    world.warehouse.release_hold(old.id, reason="closed")
    assert world.stream.erase(EVE, reason=f"request of {EVE}").apply().is_done
    hold = world.warehouse.hold("ORDERS", from_seq=2, to_seq=2, reason="case 12")
    assert world.in_ledger() == []
    world.restore(keep_runs=keep_runs)
    assert world.left()
    assert {(each.id, each.line) for each in world.warehouse.holds()} >= {(hold.id, "pending")}
    world.apply()
    assert world.seqs() == [2, 4, 5]
    assert world.left() == []
    assert world.holds() == [hold.id]
    damages = world.stream.verify().damages
    # The history of a stream that was put back alone has runs that its log lacks.
    expected = {"history", "chain", "evidence"} if keep_runs else set[str]()
    assert {each.check for each in damages} == expected, damages
    [report] = world.stream.erasures()
    assert report.is_done
    assert report.record.replayed
    world.warehouse.reclaim()
    assert len(world.stream.erasures()) == 1


def test_sequences_that_are_assigned_again_are_other_messages(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(BOB)
    world.back_up()
    world.publish(EVE, BOB)
    assert world.stream.erase(EVE, reason="request 7").apply().is_done
    world.restore()
    world.publish(BOB, EVE)
    assert world.seqs() == [1, 2, 3]
    world.apply()
    assert world.seqs() == [1, 2, 3]
    assert [each.is_done for each in world.stream.erasures()] == [True]


def test_a_hold_that_forbids_the_replay_stops_removals(tmp_path: Path) -> None:
    world = World(tmp_path, max_msgs=1)
    world.publish(EVE, BOB, BOB)
    world.back_up()
    world.stream.erase(EVE, reason="request 7").apply()
    world.restore()
    world.open(ledger=None)
    hold = world.warehouse.hold("ORDERS", subject=EVE, reason="case 12")
    world.open()
    for _ in range(2):
        with pytest.raises(RefusedError, match="a legal hold wins"):
            world.apply()
        assert world.seqs() == [1, 2, 3]
    world.warehouse.release_hold(hold.id, reason="closed")
    world.apply()
    assert world.seqs() == [3]
    assert world.left() == []


def test_a_new_ledger_gets_what_it_lacks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    world.open(ledger=None)
    world.publish(EVE, BOB)
    ranges = [(2 * n, 2 * n) for n in range(1, 3_000)]
    hold = world.warehouse.hold("ORDERS", ranges=ranges, reason="case 12")
    world.stream.erase(EVE, reason="request 7").apply()
    world.open()
    world.apply()
    world.apply()
    assert caplog.text.count("was done before the ledger began: after") == 1
    copies = HoldRecords(str(tmp_path / "ledger/streams/ORDERS"), "ORDERS")
    assert [each.id for each in copies.all()] == [hold.id]
    shutil.rmtree(world.lake / "streams/ORDERS/holds")
    world.apply()
    assert world.holds() == [hold.id]


def test_a_ledger_that_is_gone_stops_removals_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, max_msgs=1)
    world.publish(EVE, BOB)
    hold = world.warehouse.hold("ORDERS", to_seq=1, reason="case 12")
    world.ledger.rename(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="not the ledger that the warehouse"):
        world.apply()
    with pytest.raises(RefusedError, match="not the ledger"):
        world.warehouse.release_hold(hold.id, reason="closed")
    assert world.seqs() == [1, 2]
    assert world.holds() == [hold.id]
    world.ledger.write_text("no directory")
    assert world.stream.plan().plan.removed_messages == 0
    world.stream.state()
    with pytest.raises(RetentionError):
        world.apply()
    world.ledger.unlink()
    (tmp_path / "elsewhere").rename(world.ledger)
    world.warehouse.release_hold(hold.id, reason="closed")
    world.apply()
    assert world.seqs() == [2]


@pytest.mark.parametrize("kind", ["erasures", "holds"])
@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_damaged_entry_stops_removals(tmp_path: Path, kind: str, suffix: str) -> None:
    world = World(tmp_path, max_msgs=1)
    world.publish(EVE, BOB, BOB)
    world.back_up()
    world.stream.erase(EVE, reason="request 7").apply()
    ranges = [(2 * n, 2 * n) for n in range(1, 3_000)]
    world.warehouse.hold("ORDERS", ranges=ranges, reason="case 12")
    world.restore()
    [place] = [
        each for each in (world.ledger / "streams/ORDERS" / kind).iterdir() if each.suffix == suffix
    ]
    content = place.read_bytes()
    place.write_bytes(content[:-9] + b"012345678")
    with pytest.raises(DamagedError, match="nothing was removed"):
        world.apply()
    assert world.seqs() == [1, 2, 3]
    place.write_bytes(content)
    world.apply()
    assert world.seqs() == [2, 3]


def test_a_ledger_in_the_warehouse_is_refused(tmp_path: Path) -> None:
    for ledger in ("ledger", ".", ".."):
        (tmp_path / "retention.yaml").write_text(json.dumps({"ledger": ledger}))
        with pytest.raises(ConfigError, match="one restore from a backup would replace both"):
            open_warehouse(tmp_path / "retention.yaml")


def test_resume_replays(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.publish(EVE, BOB)
    world.back_up()
    world.stream.erase(EVE, reason="request 7").apply()
    world.restore()
    erasure = world.stream.state().missing_erasures
    assert "1 erasure of the ledger to replay" in repr(world.stream.state())
    assert [each.check for each in world.stream.verify().damages] == ["ledger"]
    [finding] = [each for each in check_stream(world.stream.opened) if each.check == "ledger"]
    assert (finding.result, erasure[0] in finding.detail) == ("warning", True)
    [report] = world.stream.resume_erasures()
    assert (report.record.id,) == erasure
    assert (report.is_done, report.record.replayed, report.removed_messages) == (True, True, 1)
    assert world.left() == []
    assert erasures_of(world.stream.opened).ids() == [report.record.id]
    [finding] = [each for each in check_stream(world.stream.opened) if each.check == "ledger"]
    assert finding.result == "ok"
