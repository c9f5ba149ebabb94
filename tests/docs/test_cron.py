"""The page on cron and systemd: its lines run like in cron, and its units pass systemd's checks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which

import pytest

from tests.support.sandboxes import ORDERS, lines, opened

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cron.md").read_text(encoding="utf-8")
BARE = {"PATH": "/usr/bin:/bin", "HOME": "/"}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """The commands of all crontabs, without their times."""
    entries = "".join(blocks("crontab")).splitlines()
    return [entry.split(maxsplit=5)[5] for entry in entries if entry[0].isdigit()]


def as_cron(command: str, lake: Path) -> subprocess.CompletedProcess[str]:
    here = command.replace("/srv/lake-retention", str(ROOT)).replace("/srv/lake/", f"{lake}/")
    return subprocess.run(
        ["sh", "-c", here], cwd=ROOT, env=BARE, capture_output=True, text=True, check=False
    )


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    opened(tmp_path, ORDERS).stream("ORDERS").publish(lines(5, first_ns=1_600_000_000 * 10**9))
    return tmp_path


def test_a_nightly_line_works_and_says_nothing(lake: Path) -> None:
    done = as_cron(commands()[0], lake)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert '"removed_messages": 5' in (lake / "retain.json").read_text(encoding="utf-8")


def test_a_line_whose_configuration_is_wrong_says_one_sentence(lake: Path) -> None:
    (lake / "retention.yaml").write_text("streams: [{name: A, max_age: 1y}]", encoding="utf-8")
    done = as_cron(commands()[0], lake)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


def test_every_line_names_what_is_there() -> None:
    assert len(commands()) == 3
    for command in commands():
        for module in re.findall(r"-m (jobs\.\w+)|(jobs/\w+)\.py", command):
            assert (ROOT / "".join(module).replace(".", "/")).with_suffix(".py").is_file()


@pytest.mark.skipif(which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_service_is_exposed_little(tmp_path: Path) -> None:
    service = tmp_path / "lake-retention.service"
    service.write_text(blocks("ini")[0].replace("/srv/lake-retention", str(ROOT)), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=30", service],
        capture_output=True,
        text=True,
        check=False,
    )
    [exposure] = re.findall(r"Overall exposure level for .*: (\d\.\d)", done.stdout)
    assert done.returncode == 0, done.stdout
    assert f"{exposure} with it" in PAGE
    bare = service.read_text(encoding="utf-8").partition("\n\n# It may write")[0]
    service.write_text(bare, encoding="utf-8")
    exposed = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", service],
        capture_output=True,
        text=True,
        check=False,
    )
    [exposure] = re.findall(r"Overall exposure level for .*: (\d\.\d)", exposed.stdout)
    assert f"{exposure} without the part" in PAGE


@pytest.mark.skipif(which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    service, timer = blocks("ini")
    (tmp_path / "lake-retention.service").write_text(
        service.replace("/srv/lake-retention", str(ROOT)), encoding="utf-8"
    )
    (tmp_path / "lake-retention.timer").write_text(timer, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "lake-retention.timer")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "lake-retention" not in done.stderr, done.stderr
