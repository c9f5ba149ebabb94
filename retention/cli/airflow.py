"""The command that copies the package of Airflow DAGs: airflow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from retention.cli.app import app
from retention.cli.output import put_json, put_report
from retention.cli.settings import settings_of
from retention.core.wording import counted
from retention.errors import UsageError

FOLDER = "airflow_dags"


@app.command()
def airflow(
    ctx: typer.Context,
    copy_to: Annotated[
        Path,
        typer.Option(metavar="DIR", help=f"The folder of DAG files; {FOLDER}/ is created in it."),
    ],
) -> None:
    """Copy the Airflow DAGs to Airflow's folder of DAG files."""
    from retention.storage import files
    from retention.storage.errors import as_storage_errors

    source, target = dags(), copy_to / FOLDER
    with as_storage_errors(str(target)):
        _check(source, copy_to, target)
        names = list(_names(source))
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            files.replace(str(target / name), (source / name).read_bytes())
    settings, pools = settings_of(ctx), str(target / "pools.json")
    if settings.format == "table":
        put_report([f"{target}: {counted(len(names), 'file')}", f"  airflow pools import {pools}"])
    else:
        entry = {"directory": str(target), "files": names, "pools": pools}
        put_json(settings, entry, [entry])


def dags() -> Path:
    """The package of DAGs: in this package if it was installed, next to it in a clone."""
    package = Path(__file__).parents[1]
    installed = package / FOLDER
    return installed if installed.is_dir() else package.parent / FOLDER


def _check(source: Path, folder: Path, target: Path) -> None:
    """Refuse a missing folder, or one in which the target contains files that are not part of the package."""
    if not source.is_dir():
        raise UsageError(
            f"{source}: this installation has no DAGs; nothing was written; install the whole package"
        )
    if not folder.is_dir():
        raise UsageError(
            f"{folder}: is not a directory; nothing was written; name the folder of DAG files, such as "
            "$AIRFLOW_HOME/dags"
        )
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"{target}: is not a directory of its own; nothing was written; remove it")
    foreign = sorted(set(_names(target)) - set(_names(source)))
    if foreign:
        raise UsageError(
            f"{target} has {foreign[0]}, which is not a file of this package; nothing was written; remove it, or "
            "delete the folder if an earlier release made it"
        )


def _names(folder: Path) -> Iterator[str]:
    """The files below a folder, relative to it, without Python's compiled files."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix()
