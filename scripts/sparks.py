"""Test every supported version of Spark, each in its own environment below `.sparks`.

`python -m scripts.sparks [VERSION…]`; an environment is rebuilt when the lock file changes.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from retention.engines.spark.versions import COMPANIONS
from scripts.bootstrap import LOCK, PACK_LOOSELY, ROOT, UV, locked_packages

PLACE = ROOT / ".sparks"
OTHERS = ("pyspark", "delta-spark")
"""Locked packages with another version in each environment, or none."""
_SAME_PLANS = (
    "tests/contract/test_engines.py::test_both_engines_plan_the_same_bytes_and_leave_the_same_rows"
)
SELECTION = (
    *(f"tests/retention/engines/spark/test_{name}.py" for name in ("read", "session")),
    *(f"tests/spark/test_{name}.py" for name in ("jobs", "append", "batches", "ingest")),
    *(f"{_SAME_PLANS}[{format_}-everything at once]" for format_ in ("delta", "parquet")),
    "tests/connect",
    "tests/contract/test_s3_spark.py",
)
"""The tests that use Spark's interfaces; the others do not depend on its version."""
LENIENT = ("-W", "ignore::ResourceWarning")
"""Before Spark 4.2, frames read as Arrow tables leave their sockets to the garbage collector."""


def main() -> int:
    """Test the versions named by arguments, or all; returns the number of failed ones."""
    tested = [version for known in COMPANIONS.values() for version in known.tested]
    failed = 0
    for version in sys.argv[1:] or tested:
        started = time.monotonic()
        python = _environment(version)
        tests = [str(python), "-m", "pytest", *LENIENT, *SELECTION]
        ended = subprocess.run(tests, cwd=ROOT, env=_variables(), check=False).returncode
        failed += ended != 0
        came = "all passed" if ended == 0 else "FAILED"
        print(f"Spark {version}: {came} ({time.monotonic() - started:.0f} s)", flush=True)
    return failed


def _environment(version: str) -> Path:
    """The Python of an environment with that Spark, its JARs, and all other locked packages."""
    folder = PLACE / version
    python, stamp = folder / "bin" / "python", folder / "ready"
    fingerprint = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint:
        return python
    print(f"Spark {version}: making {folder.relative_to(ROOT)} …", flush=True)
    locked = locked_packages(LOCK.read_text(encoding="utf-8"))
    for name in OTHERS:
        del locked[name]
    _run(str(UV), "venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
    install = (str(UV), "pip", "install", "--quiet", "--python", str(python))
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "requirements.txt")
        wanted.write_text("".join(locked.values()), encoding="utf-8")
        _run(*install, "--require-hashes", "-r", str(wanted))
    _run(*install, *PACK_LOOSELY, "--no-deps", f"pyspark=={version}")
    _run(*install, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    _run(str(python), "-m", "retention.engines.spark.jars")
    stamp.write_text(fingerprint, encoding="utf-8")
    return python


def _variables() -> dict[str, str]:
    """The environment variables of a test process, for this Spark only."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}


def _run(*command: str) -> None:
    """Run one step; if it fails, exit with its output."""
    done = subprocess.run(
        command, cwd=ROOT, env=_variables(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).strip()}")


if __name__ == "__main__":
    sys.exit(main())
