"""What all tests share: an odd time zone, one Spark session, an empty warehouse."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests.support.file_times import lines_of
from tests.support.shares import left_out

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")  # noqa: S108
ROOM = 2 << 30
"""Bytes that must be free in memory before tests write there."""

# A durable write to a disk waits for it, a hundred times in a test. What a killed process wrote to memory is there as
# well; what is written in which order, tests of their own hold. TMPDIR says otherwise.
if "TMPDIR" not in os.environ and MEMORY.is_dir() and disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None

# Without bytecode each of the many processes that tests start compiles every library anew, for seconds. Who wants none
# beside the sources has it elsewhere.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(ROOT / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# A JVM that lives for seconds spends most of them on compiling what it will not run often.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# A time zone 5 h 45 min off: a time that lost its zone on the way shows itself.
os.environ["TZ"] = "Asia/Kathmandu"
time.tzset()

# Tests that run beside each other are given the width of their terminal, which tables respect.
os.environ.pop("COLUMNS", None)

# Times vary on shared machines; how long an example takes is no property of the code.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

# Airflow has an environment of its own: `make airflow`.
collect_ignore = ["airflow"]

WHOLE = (
    "airflow_dags",
    "benchmarks",
    "cli",
    "cluster",
    "concurrency",
    "conformance",
    "connect",
    "contract",
    "crash",
    "docs",
    "histories",
    "jobs",
    "live",
    "safety",
    "sessions",
    "spark",
)
"""Folders whose tests go through stores, processes or servers."""
LONG = ("concurrency", "conformance", "contract", "crash")
"""Those whose files take minutes: nobody should be at one when everybody else is done."""
SESSIONS = 2
"""The sessions of Spark that a run beside others has: as many as CI has cores."""
NEEDS_SPARK = re.compile(r'mark\.spark|spark: SparkSession|"spark"')
"""How the text of a file tells that its tests are given a session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option by which `make test` tries on one format what a file by itself tries on each."""
    parser.addoption(
        "--by-turns", action="store_true", help="try each test on one format, by turns"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is more than pure: by its folder, or because it is given a place on a disk. Long files come first."""
    tests = Path(__file__).parent
    folders = {
        item: item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""
        for item in items
    }
    for item, folder in folders.items():
        if folder in WHOLE or "tmp_path_factory" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.whole)
    items.sort(key=lambda item: (folders[item] not in LONG, folders[item] not in WHOLE))
    if config.getoption("by_turns"):
        in_turn = [item for item in items if not item.get_closest_marker("every_format")]
        left = left_out(item.nodeid for item in in_turn if item.get_closest_marker("whole"))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell where the time of `make test` went."""
    if config.getoption("by_turns"):
        terminalreporter.section("seconds of files and workers")
        reports = [report for each in terminalreporter.stats.values() for report in each]
        for line in lines_of(reports):
            terminalreporter.line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewSessions:
    """How `make test` deals out files to its workers."""
    return FewSessions(config, log)


class FewSessions(LoadFileScheduling):  # type: ignore[misc]
    """A file goes to one worker; all that need Spark go to two, each of which starts a session for them."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        """Begin with no file given to a session."""
        super().__init__(config, log)
        self._sessions: dict[str, str] = {}

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return self._session_of(file) if _needs_spark(file) else file

    def _session_of(self, file: str) -> str:
        return self._sessions.setdefault(file, f"spark {len(self._sessions) % SESSIONS}")


@cache
def _needs_spark(file: str) -> bool:
    return NEEDS_SPARK.search((ROOT / file).read_text(encoding="utf-8")) is not None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the test run."""
    from retention.engines.spark.session import build_session

    # Statements of a few rows each: neither a second compiler nor threads that collect garbage pay for themselves.
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    started = build_session("tests", java_options=options)
    yield started
    started.stop()


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """An empty folder for a warehouse."""
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder
