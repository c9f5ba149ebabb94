"""Calls between modules of `retention` in a small publish and a small pass: `python -m scripts.crossings [DIR]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from types import FrameType

CONFIG = """\
warehouse: {}
streams:
  - name: ORDERS
    format: parquet
    subjects: ["orders.>"]
    max_msgs: 5
"""
MESSAGES = [{"subject": f"orders.{number}", "payload": b"a payload"} for number in range(10)]


def crossings(root: Path) -> str:
    """The pairs of functions of different modules in the clone at `root` that call each other.

    Returns:
        "a pass: 526 (329 between packages); a publish: 263 (128 between packages)".
    """
    child = [sys.executable, __file__, "--here"]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = run(child, cwd=root, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _counted(work: Callable[[], object], package: Path) -> str:
    pairs: set[tuple[str, str, str, str]] = set()

    def module_of(frame: FrameType) -> str:
        path = frame.f_code.co_filename
        return path.removeprefix(f"{package}/") if path.startswith(f"{package}/") else ""

    def note(frame: FrameType, event: str, _: object) -> None:
        called = module_of(frame)
        if event != "call" or not called:
            return
        caller = frame.f_back
        while caller is not None and not module_of(caller):
            caller = caller.f_back
        if caller is not None and module_of(caller) != called:
            pairs.add((module_of(caller), caller.f_code.co_name, called, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    far = sum(a.split("/")[0] != b.split("/")[0] for a, _, b, _ in pairs)
    return f"{len(pairs)} ({far} between packages)"


def _here() -> str:
    import retention

    package = Path(retention.__file__).parent
    with TemporaryDirectory() as folder:
        config = Path(folder, "retention.yaml")
        config.write_text(CONFIG.format(f"{folder}/warehouse"), "utf-8")
        orders = retention.open_warehouse(str(config)).stream("ORDERS")
        orders.publish(MESSAGES)
        orders.plan().apply()
        publish = _counted(lambda: orders.publish(MESSAGES), package)
        a_pass = _counted(lambda: orders.plan().apply(), package)
    return f"a pass: {a_pass}; a publish: {publish}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--here"]:
        print(_here())
    else:
        print(crossings(Path(*sys.argv[1:]).resolve()))
