"""A report of an erasure that is lost, or that somebody changed, is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from retention.storage.checksum import parse_json
from tests.support.laying import even_segments, lay, warehouse_with

NOW = 1_800_000_000 * 10**9


def cut_off(report: Path) -> None:
    report.write_bytes(report.read_bytes()[:-9])


def name_another(report: Path) -> None:
    report.write_bytes(report.read_bytes().replace(b"ORDERS", b"OTHERS"))


@pytest.mark.parametrize("harm", [Path.unlink, cut_off, name_another])
def test_a_harmed_report_of_an_erasure_is_found_and_its_copy_mends_it(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    stream = warehouse_with(tmp_path, "parquet", NOW).stream("ORDERS")
    lay(stream.opened, even_segments(1, 10))
    assert stream.erase(seqs=[7], reason="request 7").apply().is_done
    assert stream.verify().damages == ()
    [report] = Path(stream.opened.root).glob("_retention/erasures/*.report.json")
    copy = report.read_bytes()
    assert parse_json(copy)["stream"] == "ORDERS"
    harm(report)
    [damage] = stream.verify().damages
    assert (damage.check, damage.subject) == ("erasures", str(report))
    assert damage.remedy == "restore it from a copy of the warehouse"
    report.write_bytes(copy)
    assert stream.verify().damages == ()
