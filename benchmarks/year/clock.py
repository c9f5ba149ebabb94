"""A manual clock for a process with all its libraries: the wall clock, and the times of files (`clock.c`)."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

COMPILER = "cc"
_SOURCE = Path(__file__).with_name("clock.c")


def compiled(directory: Path) -> dict[str, str]:
    """Compile the clock into a directory; returns the environment of a process under it.

    With `MANUAL_CLOCK`, a path, processes share settings of the clock: each starts with the last one.

    Raises:
        FileNotFoundError, subprocess.CalledProcessError: there is no C compiler, or it fails.
    """
    library = directory / "clock.so"
    command = [COMPILER, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return os.environ | {"LD_PRELOAD": str(library)}


def set_clock(instant_ns: int) -> None:
    """Set this process's clock forward; it continues from there.

    Args:
        instant_ns: the new time, nanoseconds since the epoch.

    Raises:
        ValueError: the new time is earlier than the clock's, or the shared file cannot be written.
        AttributeError: the process was not started under the clock.
    """
    setter = ctypes.CDLL(None).manual_clock_set
    setter.argtypes = [ctypes.c_int64]
    if setter(instant_ns):
        raise ValueError(f"{instant_ns} is earlier than the clock says: it is only set forward")
