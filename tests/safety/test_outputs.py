"""Every option for an output file, given an existing foreign file: the file is kept, and no work starts."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from retention.engines.spark.environment_archive import ENVIRONMENT
from tests.support.jobs import run_job
from tests.support.sandboxes import ORDERS, Commands, commands, lines
from tests.support.trees import tree

Run = Callable[[Commands, str], tuple[int, str]]


def command(*words: str, stdin: str = "") -> Run:
    def run(orders: Commands, place: str) -> tuple[int, str]:
        done = orders.run(*(place if word == "FILE" else word for word in words), stdin=stdin)
        return done.exit_code, done.output

    return run


def job(name: str, option: str) -> Run:
    def run(orders: Commands, place: str) -> tuple[int, str]:
        done = run_job(name, orders.folder, "--engine=local", option, place)
        return done.returncode, done.stdout + done.stderr

    return run


WAYS: dict[str, tuple[Run, str]] = {
    "plan": (command("plan", "-o", "FILE"), "a saved plan"),
    "metrics": (command("apply", "--yes", "--metrics-file", "FILE"), "metrics of a run"),
    "rejects": (command("publish", "ORDERS", "--rejects", "FILE", stdin="{"), "refused lines"),
    "export": (command("export", "nats-backup", "ORDERS", "FILE"), "a NATS backup"),
    "zip": (command("package", "--py-files", "FILE"), "an archive of this package"),
    "venv": (command("package", "--venv", "FILE"), "a packed environment"),
    "report of a job": (job("plan", "--report-file"), "a job's report"),
    "metrics of a job": (job("retain", "--metrics-file"), "metrics of a run"),
}


@pytest.fixture
def orders(tmp_path: Path) -> Commands:
    orders = commands(tmp_path / "w", ORDERS)
    orders.json("publish", "ORDERS", stdin="\n".join(lines(12)))
    return orders


def foreign(orders: Commands, way: str) -> list[Path]:
    """A file of each kind that must not be lost."""
    folder = orders.folder
    table = next(folder.rglob("*.parquet"))
    entry = next(folder.rglob("log/*.json"))
    found = [folder / "retention.yaml", table, entry]
    if way in ("zip", "venv"):
        found = [folder / f"other.{'zip' if way == 'zip' else 'tar.gz'}"]
        found[0].write_bytes(b"PK\x03\x04" if way == "zip" else b"\x1f\x8b\x08")
    return found[:1] if way.endswith("job") else found


@pytest.mark.parametrize("way", WAYS)
def test_a_file_of_another_kind_stays(orders: Commands, way: str) -> None:
    run, kind = WAYS[way]
    files = foreign(orders, way)
    before = tree(orders.folder)
    for file in files:
        code, said = run(orders, str(file))
        sentence = (
            f"{file}: holds something other than {kind}, and stays as it is; name another file, or "
            "remove that one"
        )
        assert (code, sentence in " ".join(said.split())) == (2, True), said
        assert tree(orders.folder) == before


@pytest.mark.parametrize(
    "way", ["plan", "metrics", "rejects", "zip", "report of a job", "metrics of a job"]
)
def test_a_file_of_its_kind_is_replaced(orders: Commands, tmp_path: Path, way: str) -> None:
    run, _ = WAYS[way]
    for _ in range(2):
        code, said = run(orders, str(tmp_path / "out.zip"))
        assert code == 0 or way == "rejects", said
    assert (tmp_path / "out.zip").stat().st_size


def test_a_packed_environment_is_known_again(tmp_path: Path) -> None:
    packed = tmp_path / "environment.tar.gz"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh", encoding="utf-8")
    for arcname, known in ((".", True), ("x", False)):
        with tarfile.open(packed, "w:gz") as archive:
            archive.add(tmp_path / "bin", arcname=f"{arcname}/bin")
        with packed.open("rb") as source:
            assert ENVIRONMENT.recognizes(source) is known


def test_tables_beside_a_plan_are_looked_at_too(orders: Commands, tmp_path: Path) -> None:
    beside = tmp_path / "plan.rules.parquet"
    beside.write_bytes(b"mine")
    done = orders.run("plan", "-o", str(tmp_path / "plan"))
    assert done.exit_code == 2, done.output
    assert "holds something other than a table of a saved plan" in " ".join(done.output.split())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [beside.name]


def test_what_a_backup_is_restored_with_is_looked_at_before_the_work(
    orders: Commands, tmp_path: Path
) -> None:
    beside = tmp_path / "orders.tar.s2.json"
    beside.write_text("mine", encoding="utf-8")
    done = orders.run("export", "nats-backup", "ORDERS", str(tmp_path / "orders.tar.s2"))
    assert done.exit_code == 2, done.output
    assert not (tmp_path / "orders.tar.s2").exists()


def test_a_report_goes_to_standard_output(orders: Commands) -> None:
    command = [sys.executable, "-m", "retention.jobs.plan", "--engine=local", "--quiet"]
    done = subprocess.run(
        [*command, "--config", orders.folder / "retention.yaml", "--report-file", "/dev/stdout"],
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout)["kind"] == "retention report"
    assert Path("/dev/stdout").is_symlink()


def test_reports_of_earlier_versions_are_replaced(orders: Commands, tmp_path: Path) -> None:
    place = tmp_path / "report.json"
    for report in (
        {"format_version": 1, "as_of_ns": 1, "streams": []},
        {"format_version": 1, "error": {"exit_code": 2, "message": "x"}},
    ):
        place.write_text(json.dumps(report, indent=2), encoding="utf-8")
        assert job("plan", "--report-file")(orders, str(place))[0] == 0
        assert json.loads(place.read_bytes())["kind"] == "retention report"


def test_one_file_for_both_is_refused_before_the_work(orders: Commands, tmp_path: Path) -> None:
    place = str(tmp_path / "both")
    run = job("retain", f"--metrics-file={place}")
    code, said = run(orders, f"--report-file={place}")
    assert code == 2
    assert "is named for the report and for the metrics; nothing was done" in said
    assert orders.json("state")[0]["messages"] == 12
