"""A process that competes for a lock: as the holder it records itself, and sometimes dies."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from retention.api.warehouse import open_warehouse
from retention.errors import LockLostError

BUCKET, KEY = "LOCKS", "nightly"


def alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def hold(folder: Path, revision: int, draw: random.Random, deaths: float) -> None:
    """Hold the lock exclusively: no other live process may hold it."""
    guard, mine = folder / "holder", folder / str(os.getpid())
    mine.write_text(str(os.getpid()))
    while True:
        try:
            os.link(mine, guard)
            break
        except FileExistsError:
            other = guard.read_text()
            if alive(int(other)):
                note(folder, f"two {revision} {other}")
                return
            guard.unlink()
    note(folder, f"held {revision}")
    time.sleep(draw.random() / 200)
    if draw.random() < deaths:
        note(folder, f"died {revision}")
        os.kill(os.getpid(), signal.SIGKILL)
    guard.unlink()


def note(folder: Path, text: str) -> None:
    """Append a line to the log of all processes, atomically."""
    descriptor = os.open(folder / "log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, f"{text} {os.getpid()}\n".encode())
    os.close(descriptor)


def main(place: str, folder: Path, turns: int, deaths: float, seed: int) -> None:
    """Compete until all processes together had `turns` turns."""
    draw, bucket = random.Random(seed), open_warehouse(place).kv(BUCKET)
    while held(folder) < turns:
        try:
            with bucket.lock(KEY, wait="5m") as lock:
                hold(folder, lock.revision, draw, deaths)
        except LockLostError:
            note(folder, "lost 0")


def held(folder: Path) -> int:
    """The number of turns so far."""
    log = folder / "log"
    return log.read_text().count("held ") if log.exists() else 0


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
