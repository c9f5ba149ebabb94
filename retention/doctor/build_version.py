"""The version of this program with its build: the commit from which it was built."""

from __future__ import annotations

import subprocess
from pathlib import Path

from retention import __version__

PACKAGE = Path(__file__).parents[1]
RECORD = "build.txt"
"""The package file with the build of a wheel or sdist; `scripts/build_record.py` writes it."""
DESCRIBE = ("git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=-changed")
"""The command that prints the commit of a clone, and whether its files differ from it."""


def version_and_build() -> str:
    """The version and the build, as in `0.1.0 (build 84242220a1b2)`; for a clone, the commit checked out."""
    return f"{__version__} (build {_build() or 'not recorded'})"


def _build() -> str:
    try:
        return (PACKAGE / RECORD).read_text(encoding="ascii").strip()
    except OSError:
        return _of_clone()


def _of_clone() -> str:
    """The build of a clone; empty elsewhere, so that a repository around an environment is not reported."""
    if not (PACKAGE.parent / ".git").exists():
        return ""
    try:
        done = subprocess.run(  # noqa: S603  (fixed arguments)
            DESCRIBE, cwd=PACKAGE.parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return ""
    return done.stdout.strip()
