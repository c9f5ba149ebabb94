"""The commands on a directory of Parquet files, under a manual clock, as somebody uses them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.cli import settings
from tests.support.sandboxes import Commands

DAY = 86_400
NOW = 1_795_132_800
"""2026-11-20T00:00:00Z in seconds since the epoch."""
AGES = {"k=a%20b/a": [50, 40], "k=ü=/b": [40, 20], "k=c/c": [9, 8]}
"""Path → the ages of a file's rows, in days."""


@dataclass
class Lake:
    """A directory that `adopt` has listed, with a key and a limit of 30 days."""

    folder: Path
    adopted: str
    now: int = NOW

    @property
    def root(self) -> Path:
        return self.folder / "lake" / "clicks"

    @property
    def cli(self) -> Commands:
        return Commands(self.folder / "w")

    def rows(self) -> int:
        """The rows of all files that are complete."""
        return sum(pq.ParquetFile(path).metadata.num_rows for path in self.root.rglob("?.parquet"))

    def applied(self) -> dict[str, object]:
        """The entry of a pass."""
        [entry] = self.cli.json("apply", "--yes")["tables"]
        return dict(entry)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    made = Lake(tmp_path, "")
    monkeypatch.setattr(settings, "time", SimpleNamespace(time_ns=lambda: made.now * 10**9))
    for name, ages in AGES.items():
        place = made.root / f"{name}.parquet"
        place.parent.mkdir(parents=True)
        at = pa.array([NOW - DAY * age for age in ages], pa.timestamp("s", "UTC"))
        pq.write_table(pa.table({"at": at, "user": ["u", "v"]}), place)
        os.utime(place, (NOW - DAY, NOW - DAY))
    (made.root / "k=c" / "growing.parquet").write_bytes(b"PAR1")
    (tmp_path / "w").mkdir()
    config = tmp_path / "w" / "retention.yaml"
    config.write_text("warehouse: .\ndefaults: {engine: local}\n")
    made.adopted = made.cli.run("adopt", made.root).stdout
    limited = "key: user\n    max_age: 30d\n    grace: 2d"
    config.write_text(config.read_text().replace("# max_age: 90d", limited))
    return made


def test_a_plan_counts_the_files_that_stay_and_a_pass_is_explained(lake: Lake) -> None:
    assert "a directory of Parquet files without a log" in lake.adopted
    planned = lake.cli.run("plan").stdout
    assert "clicks: would remove 2 of 6 rows" in planned
    assert "\n  1 dropped, 0 cut, 2 kept files; read 1 file\n" in planned
    assert "\n  1 file kept whole: without readable footer\n" in planned
    assert "\n  1 file kept whole: with rows that stay\n" in planned
    [entry] = lake.cli.json("plan")["tables"]
    assert entry["files_passed_over"] == {"without_readable_footer": 1, "with_rows_that_stay": 1}
    assert (lake.cli.run("plan", "clicks", "--sql").exit_code, lake.rows()) == (2, 6)
    applied = lake.applied()
    assert (applied["removed_rows"], lake.rows()) == (2, 4)
    shown = lake.cli.run("history", "show", applied["run"]).stdout
    assert "`retention undo` restores the rows, as long as the removed files are there" in shown
    [row] = lake.cli.json("explain", "clicks", "--key", "user=u")["removed"]
    assert (row["file"], row["row"], row["limit"]) == ("k=a%20b/a.parquet", 0, "max_age")
    at_place = ("explain", "clicks", "--file", row["file"], "--row")
    assert len(lake.cli.json(*at_place, 1)["removed"]) == 1
    assert lake.cli.run(*at_place, 2).exit_code == 2
    kept = lake.cli.run("explain", "clicks", "--file", "k=ü=/b.parquet", "--row", "0").stdout
    assert "kept; due by max_age since 2026-11-10T00:00:00Z, in a file with rows that stay" in kept


def test_a_pass_is_undone_until_its_files_are_reclaimed(lake: Lake) -> None:
    first = lake.applied()
    [entry] = lake.cli.json("history")
    assert (entry["run"], entry["removed_rows"], entry["table"]) == (first["run"], 2, "clicks")
    assert (lake.cli.run("undo", first["run"]).exit_code, lake.rows()) == (0, 6)
    lake.now += DAY
    again = lake.applied()
    within = lake.cli.run("reclaim", "--yes").stdout
    assert within.startswith("clicks: nothing to delete, grace 2d\n  kept: dead for less than")
    lake.now += 2 * DAY + 1
    [reclaimed] = lake.cli.json("reclaim", "--yes")["tables"]
    assert (reclaimed["files"], reclaimed["done"], lake.rows()) == (1, True, 4)
    assert not (lake.folder / "lake" / "_retention").exists()
    gone = lake.cli.run("undo", again["run"])
    assert (gone.exit_code, "is gone, as after reclaim" in gone.stderr) == (4, True)
    assert lake.rows() == 4


def test_an_emptied_directory_has_a_plan_and_a_state(lake: Lake) -> None:
    lake.now += 100 * DAY
    assert (lake.applied()["removed_rows"], lake.rows()) == (6, 0)
    assert "clicks: nothing to remove" in lake.cli.run("plan").stdout
    assert "clicks: nothing to remove" in lake.cli.run("plan", "--estimate").stdout
    [state] = lake.cli.json("state")
    assert (state["rows"], state["files"], state["due"]) == (0, 0, {"lower": 0, "upper": 0})
