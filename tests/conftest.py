"""Shared fixtures: an odd time zone, one Spark session, an empty warehouse."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from tests.support.file_times import lines_of
from tests.support.shares import (
    all_but_a_ninth,
    all_but_a_third,
    all_but_one_case,
    all_but_one_format,
)
from tests.support.slow_tests import VERY_SLOW_S, function_of, slow_functions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
MEMORY = Path("/dev/shm")  # noqa: S108
ROOM = 2 << 30
"""The minimum free bytes in memory before tests write there."""

# Durable writes to a disk are slow, and a test makes a hundred of them. Writes of a killed process
# to memory survive, too; separate tests check the order of writes. TMPDIR overrides this.
if "TMPDIR" not in os.environ and MEMORY.is_dir() and disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = str(MEMORY)
    tempfile.tempdir = None

# Without bytecode, each of the many child processes compiles every library for seconds. If bytecode
# next to the sources is disabled, use another directory.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(ROOT / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix

# A short-lived JVM spends most of its time compiling rarely executed code.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

# A time zone with an offset of 5 h 45 min reveals times that lost their zone.
os.environ["TZ"] = "Asia/Kathmandu"
time.tzset()

# Parallel tests inherit the width of the terminal, which tables respect.
os.environ.pop("COLUMNS", None)

# Times vary on shared machines, so there is no deadline for an example.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

# Airflow has its own environment: `make long NAME=airflow`.
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
"""Folders of tests with stores, processes or servers."""
ONE_CASE = ("cli", "jobs", "live", "safety", "spark")
"""Folders whose test functions run with one of their cases in `make test`."""
LONG = ("concurrency", "conformance", "contract", "crash")
"""Folders with files that take minutes; they start first, so that none is left at the end."""
NEEDS_SPARK = re.compile(r'spark: SparkSession|"spark"')
"""The pattern of test files that use a session in their own process."""

ON_S3 = re.compile(r"(?<![a-z])s3(?![a-z0-9])")
"""The pattern of names of tests on an object store: `test_s3_spark.py`, `[delta-s3]`, and not `[names3]`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `make test` to run a share of the tests, chosen by turns."""
    parser.addoption(
        "--by-turns",
        action="store_true",
        help="run the share of tests that `make test` has time for",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that are not pure, by folder or by fixtures on disk. Long files are sorted first."""
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
        left = _beyond_share(items, folders)
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


def _beyond_share(items: Iterable[pytest.Item], folders: Mapping[pytest.Item, str]) -> set[str]:
    """The names of tests that `make test` leaves out."""
    left = {
        item.nodeid for item in items if _has(item, "thorough") or _seconds_of(item) >= VERY_SLOW_S
    }
    shares: list[tuple[Callable[[Iterable[str]], set[str]], Callable[[pytest.Item], bool]]] = [
        (all_but_one_format, lambda item: _has(item, "whole") and not _has(item, "every_format")),
        (all_but_one_case, lambda item: folders[item] in ONE_CASE and not _has(item, "every_case")),
        (all_but_a_third, lambda item: folders[item] != "conformance" and _is_costly(item)),
        (all_but_a_ninth, lambda item: _seconds_of(item) > 0),
    ]
    for beyond, concerns in shares:
        left |= beyond(item.nodeid for item in items if item.nodeid not in left and concerns(item))
    return left


def _has(item: pytest.Item, marker: str) -> bool:
    return item.get_closest_marker(marker) is not None


def _is_costly(item: pytest.Item) -> bool:
    """Whether a test uses Spark or an object store; conformance cases have a share of their own."""
    return "spark" in getattr(item, "fixturenames", ()) or ON_S3.search(item.nodeid) is not None


def _seconds_of(item: pytest.Item) -> float:
    """Processor seconds of a listed slow test that may be left out; 0 of all others, and of pure tests."""
    if _has(item, "always") or not _has(item, "whole"):
        return 0.0
    return slow_functions().get(function_of(item.nodeid), 0.0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report the times of `make test`."""
    if config.getoption("by_turns"):
        terminalreporter.section("seconds of files and workers")
        reports = [report for each in terminalreporter.stats.values() for report in each]
        for line in lines_of(reports):
            terminalreporter.line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSession:
    """The distribution of files to workers in `make test`."""
    return OneSession(config, log)


class OneSession(LoadFileScheduling):  # type: ignore[misc]
    """A scheduler that sends each file to one worker, and all files with Spark to the same worker."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if _needs_spark(file) else file


@cache
def _needs_spark(file: str) -> bool:
    return NEEDS_SPARK.search((ROOT / file).read_text(encoding="utf-8")) is not None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the test run."""
    from retention.engines.spark.session import build_session

    # Statements on a few rows: a second compiler tier and parallel garbage collection do not pay off.
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
