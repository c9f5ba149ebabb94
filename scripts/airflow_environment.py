"""Test the DAGs in a separate Airflow environment, `.venv-airflow`, rebuilt when the lock file changes.

`python -m scripts.airflow_environment [TEST…]`; without arguments, all tests of `tests/airflow` run for a few minutes.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from scripts.bootstrap import ROOT, UV

PLACE = ROOT / ".venv-airflow"
LOCK = ROOT / "requirements-airflow.lock"
TESTS = ROOT / "tests" / "airflow"


def main() -> int:
    """Run the tests named by arguments, or all; returns pytest's exit code."""
    python = _environment()
    # Settings and fixtures of the other tests need packages missing in Airflow's environment.
    alone = ("-c", str(TESTS / "pytest.ini"), "--confcutdir", str(TESTS))
    tests = sys.argv[1:] or [str(TESTS)]
    return subprocess.run(
        [str(python), "-m", "pytest", *alone, *tests], cwd=ROOT, check=False
    ).returncode


def _environment() -> Path:
    """The Python of an environment with the locked packages, without the engine."""
    python, stamp = PLACE / "bin" / "python", PLACE / "ready"
    fingerprint = hashlib.sha256(sys.version.encode() + LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == fingerprint:
        return python
    print(f"Making {PLACE.relative_to(ROOT)}, 700 MB …", flush=True)
    _run(str(UV), "venv", "--quiet", "--clear", "--python", sys.executable, str(PLACE))
    # Airflow has 3,000 modules; precompiled, they load in a tenth of the time.
    install = (str(UV), "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python))
    _run(*install, "--require-hashes", "-r", str(LOCK))
    stamp.write_text(fingerprint, encoding="utf-8")
    return python


def _run(*command: str) -> None:
    """Run one step; if it fails, exit with its output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).strip()}")


if __name__ == "__main__":
    sys.exit(main())
