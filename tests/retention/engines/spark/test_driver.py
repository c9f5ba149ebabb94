from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
CHILD = """
import os, time
from retention.engines.spark.driver import end_with_spark_submit
end_with_spark_submit()
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}])
time.sleep(60)
"""


def alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def child_after_its_parent_was_killed(**environment: str) -> int:
    known = {name: value for name, value in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env=known | {"PYTHONPATH": str(ROOT)} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        until = time.monotonic() + 2
        while alive(child) and time.monotonic() < until:
            time.sleep(0.02)
            if not environment:
                break
        return child


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a death")
def test_under_spark_submit_a_driver_dies_with_its_parent() -> None:
    assert not alive(child_after_its_parent_was_killed(PYSPARK_GATEWAY_PORT="1"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a death")
def test_elsewhere_it_lives_on() -> None:
    child = child_after_its_parent_was_killed()
    assert alive(child)
    os.kill(child, signal.SIGKILL)
