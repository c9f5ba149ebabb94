"""Leases: exclusive among processes, and free when the holder dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from retention.errors import BusyError
from retention.stores.lease import lease

HOLD = """
import sys, time
from retention.stores.lease import lease
with lease(sys.argv[1], "maintenance", lambda: 1_800_000_000 * 10**9):
    print("held", flush=True)
    time.sleep(60)
"""


def now() -> int:
    return 1_800_000_000 * 10**9


def test_a_second_holder_is_told_who_holds_it_and_since_when(tmp_path: Path) -> None:
    with (
        lease(str(tmp_path), "maintenance", now),
        pytest.raises(BusyError, match=f"process {os.getpid()} on .*, since 2027-01-15T08:00:00Z"),
        lease(str(tmp_path), "maintenance", now),
    ):
        pass


def test_leases_of_other_kinds_do_not_meet(tmp_path: Path) -> None:
    with lease(str(tmp_path), "maintenance", now), lease(str(tmp_path), "append", now):
        assert (tmp_path / "_retention" / "append.lease").exists()


def test_a_lease_is_free_again_after_its_block_even_if_that_failed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lease(str(tmp_path), "append", now):
        _ = 1 // 0
    with lease(str(tmp_path), "append", now):
        pass


def test_waiting_ends_after_the_given_time(tmp_path: Path) -> None:
    with lease(str(tmp_path), "append", now):
        started = time.monotonic()
        with pytest.raises(BusyError), lease(str(tmp_path), "append", now, wait_s=0.2):
            pass
        assert 0.2 <= time.monotonic() - started < 5


def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(BusyError, match=f"process {holder.pid}"),
            lease(str(tmp_path), "maintenance", now),
        ):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with lease(str(tmp_path), "maintenance", now):
            pass
