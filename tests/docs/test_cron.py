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
        for module in re.findall(r"-m (retention\.jobs\.\w+)|(jobs/\w+)\.py", command):
            assert (ROOT / "".join(module).replace(".", "/")).with_suffix(".py").is_file()


def services(folder: Path) -> list[Path]:
    """The services of the page with their timers, in a folder; the last one is made by the page's command."""
    service, timer, of_reclaim = blocks("ini")
    written = folder / "lake-retention.service"
    written.write_text(service.replace("/srv/lake-retention", str(ROOT)), encoding="utf-8")
    written.with_suffix(".timer").write_text(timer, encoding="utf-8")
    (folder / "lake-reclaim.timer").write_text(of_reclaim, encoding="utf-8")
    [made] = blocks("sh")
    script = made.replace("/etc/systemd/system", str(folder))
    subprocess.run(["sh", "-ec", script], check=True)
    return [written, folder / "lake-reclaim.service"]


def run_of(unit: Path) -> str:
    """The command of a service."""
    [command] = re.findall(r"^ExecStart=(.*)", unit.read_text(encoding="utf-8"), re.MULTILINE)
    return str(command)


def exposure(unit: Path) -> str:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    [level] = re.findall(r"Overall exposure level for .*: (\d+\.\d)", done.stdout)
    return str(level)


def test_a_service_restarts_on_exactly_the_codes_for_which_a_retry_helps() -> None:
    table = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    codes = set(re.findall(r"^\| (\d+) \| ", table, re.MULTILINE))
    recover = (ROOT / "docs" / "recover.md").read_text(encoding="utf-8")
    [helped] = re.findall(r"^\| ([\d, ]+) \| yes \|", recover, re.MULTILINE)
    [prevented] = re.findall(r"^RestartPreventExitStatus=(.*)", PAGE, re.MULTILINE)
    assert set(prevented.split()) == codes - {"0"} - set(helped.split(", "))
    [text] = re.findall(r"Only ([^.]*) are worth a retry", PAGE)
    assert re.findall(r"\d+", text) == helped.split(", ")


def test_the_services_do_what_the_crontab_does(lake: Path) -> None:
    retain, reclaim = map(run_of, services(lake))
    assert " -m retention.jobs.retain " in retain
    assert reclaim.replace(str(ROOT), "/srv/lake-retention") == commands()[1]
    done = as_cron(reclaim, lake)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(which("systemd-analyze") is None, reason="there is no systemd here")
def test_the_services_are_exposed_little(tmp_path: Path) -> None:
    retain, reclaim = services(tmp_path)
    confined = exposure(retain)
    assert float(confined) < 3
    assert exposure(reclaim) == confined
    assert f"{confined} with it" in PAGE
    bare = retain.read_text(encoding="utf-8").partition("\n\n# It may write")[0]
    retain.write_text(bare, encoding="utf-8")
    assert f"{exposure(retain)} without the part" in PAGE


@pytest.mark.skipif(which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    timers = [str(unit.with_suffix(".timer")) for unit in services(tmp_path)]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *timers],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "lake-re" not in done.stderr, done.stderr
