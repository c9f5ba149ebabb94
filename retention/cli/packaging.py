"""The command that packages dependencies for a cluster's workers: package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.output import put_json, put_report
from retention.cli.settings import Settings, settings_of
from retention.core.units import format_size
from retention.errors import UsageError

UNPACKED = "environment"
"""The directory into which a task unpacks the archive."""


@app.command()
def package(
    ctx: typer.Context,
    venv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A whole Python environment (.tar.gz), for --archives."),
    ] = None,
    py_files: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="This package alone (.zip), for --py-files."),
    ] = None,
) -> None:
    """Package this project for `spark-submit` to bare workers."""
    settings = settings_of(ctx)
    if (venv is None) == (py_files is None):
        raise UsageError(
            "give one of two: --venv FILE packs a Python with everything that jobs need, --py-files FILE this package "
            "alone, for workers that have its dependencies"
        )
    if venv is not None:
        from retention.engines.spark.environment_archive import pack_environment

        use = f"PYSPARK_PYTHON=./{UNPACKED}/bin/python spark-submit --archives {venv}#{UNPACKED} …"
        _put(settings, venv, pack_environment(venv), use)
    elif py_files is not None:
        from retention.engines.spark.package_zip import pack_zip

        _put(settings, py_files, pack_zip(py_files), f"spark-submit --py-files {py_files} …")


def _put(settings: Settings, file: Path, length: int, use: str) -> None:
    if settings.format == "table":
        put_report([f"{file}: {format_size(length)}", f"  {use}"])
    else:
        entry = {"file": str(file), "bytes": length, "use": use}
        put_json(settings, entry, [entry])
