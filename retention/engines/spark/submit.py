"""The `spark-submit` of this Python environment; it works from every directory and environment, including cron's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from retention.engines.spark.jars import delta_jars
from retention.engines.spark.java import SHARED, launch_environment
from retention.errors import UsageError

_LOG4J = Path(__file__).with_name("log4j2-jobs.properties")
_OF_SHELLS = ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_HEAD = """\
#!/bin/sh
# Spark's own script asks the `python3` of PATH where Spark is, which need not be the Python that has Spark.
# Who has set SPARK_HOME wants another Spark, and gets it as it is.
if [ -z "$SPARK_HOME" ]; then
"""
_TAIL = """\
fi
exec "$SPARK_HOME/bin/spark-submit" "$@"
"""


def install_front(prefix: Path) -> Path:
    """Replace an environment's `spark-submit` with a wrapper that sets the locations of Spark, Java and Python.

    Variables set in a shell are kept. Without SPARK_CONF_DIR, Spark writes only warnings to stderr, and has Delta.

    Args:
        prefix: the environment's folder.

    Raises:
        UsageError: pyspark, Java or Delta's JARs are missing.
    """
    environment = launch_environment()
    values = {name: environment[name] for name in _OF_SHELLS}
    values["SPARK_CONF_DIR"] = str(_write_settings(prefix / SHARED / "conf"))
    lines = [f'  : "${{{name}:={value}}}"\n  export {name}\n' for name, value in values.items()]
    front = prefix / "bin" / "spark-submit"
    # Installers link the same file into several environments, so replace it instead of writing to it.
    fresh = front.with_suffix(".new")
    fresh.write_text("".join([_HEAD, *lines, _TAIL]), encoding="utf-8")
    fresh.chmod(0o755)
    return fresh.replace(front)


def _write_settings(folder: Path) -> Path:
    """A configuration folder for Spark: Delta, UTC, and a log of warnings."""
    settings = {
        "spark.jars": ",".join(map(str, delta_jars())),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    shutil.copyfile(_LOG4J, folder / "log4j2.properties")
    return folder


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{install_front(Path(sys.prefix))} finds its Spark, Java and Python\n")
    except UsageError as error:
        sys.exit(str(error))
