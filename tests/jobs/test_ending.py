from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.jobs import run_job

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"PYTHONPATH": str(ROOT)}
LONG = """
import signal, sys, time
from retention.jobs import ending
exec(sys.argv[1])
ending.end_with([int(process) for process in sys.argv[2:]])
print("waiting", flush=True)
time.sleep(60)
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can watch")


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def job(*processes: int, before: str = "") -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", LONG, before, *map(str, processes)],
        env=ENV,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    started.stdout.readline()
    return started


@pytest.mark.parametrize("which", [0, 1])
def test_a_job_ends_when_one_of_its_starters_is_killed(which: int) -> None:
    with sleeper() as runner, sleeper() as supervisor:
        with job(runner.pid, supervisor.pid) as working:
            assert working.poll() is None
            (runner, supervisor)[which].kill()
            assert working.wait(5) == -signal.SIGTERM
        runner.kill()
        supervisor.kill()


def test_a_starter_that_is_gone_already_ends_it_at_once() -> None:
    with sleeper() as gone:
        gone.kill()
    with job(gone.pid) as working:
        assert working.wait(5) == -signal.SIGTERM


def test_who_does_not_end_when_asked_is_killed() -> None:
    with (
        sleeper() as runner,
        job(
            runner.pid, before="signal.signal(15, signal.SIG_IGN); ending.PATIENCE_S = 0.2"
        ) as working,
    ):
        runner.kill()
        assert working.wait(5) == -signal.SIGKILL


def test_a_job_that_nobody_is_named_to_goes_on() -> None:
    code = (
        f"import subprocess, sys; job = subprocess.Popen([sys.executable, '-c', {LONG!r}, '']); "
        "print(job.pid, flush=True); job.wait()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code],
        env=ENV,
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        assert starter.stdout is not None
        working = int(starter.stdout.readline())
        starter.kill()
    time.sleep(0.3)
    os.kill(working, 0)
    os.kill(working, signal.SIGKILL)


def test_what_is_no_process_is_a_sentence(tmp_path: Path) -> None:
    done = run_job("plan", tmp_path, "--end-with", "0")
    assert (done.returncode, "--end-with 0: this process cannot be watched" in done.stderr) == (
        2,
        True,
    )
