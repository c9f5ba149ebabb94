"""The archive of a whole Python environment for `spark-submit --archives`: workers need no Python of their own.

A virtual environment mostly links to a Python that must be at the same path on every machine. This archive has a copy
of that Python and its library, with the packages of a job beside it. It runs at any path, on machines with the same
operating system and processor and no older C library.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from retention.engines.spark.package_zip import check_target, package_files
from retention.errors import RetentionError, UsageError
from retention.storage.outputs import OutputKind, open_output

DISTRIBUTION = "lake-retention"
FOR_SPARK = (DISTRIBUTION, "spark")
"""The extra with requirements that workers also need."""
FOR_NATS = ((DISTRIBUTION, "nats"), ("nats-py", "nkeys"))
"""Extras that tasks need to read a live server; they are packed if they are installed."""
OF_THE_CLUSTER = ("pyspark", "delta-spark")
"""Distributions that come with the cluster's Spark, and must have its version."""
_NOT_PACKED = {
    *("__pycache__", "site-packages", "dist-packages", "test", "tests", "ensurepip"),
    *("idlelib", "tkinter", "turtledemo", "lib2to3"),
}
"""Directories that no job needs."""
_FIRST_MEMBERS = 64
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")
_FRONT = """\
#!/bin/sh
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
LD_LIBRARY_PATH="$here/../lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export LD_LIBRARY_PATH
exec "$here/{interpreter}" "$@"
"""
"""The program `python`; an interpreter may look for its library at its build location."""
_SITE = """\
import os, site, sys

site.addsitedir(os.path.join(sys.prefix, {packages!r}))
"""
"""The first statement of the copy; builds of Python differ in the location of packages."""
_TRIAL = """\
import sys

import deltalake, numpy, pandas, pyarrow.dataset, pydantic, xxhash
import retention.jobs.retain
import retention.api.warehouse, retention.datafile.rewrite, retention.storage.files

mapped = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
loaded = {getattr(module, "__file__", None) or "" for module in sys.modules.values()} | mapped
print(*sorted(file for file in loaded if file.startswith(tuple(sys.argv[1:]))), sep="\\n")
"""
"""Loads the modules of jobs and tasks, and prints the files that come from this Python instead of the copy."""


def pack_environment(target: Path) -> int:
    """Write the archive, completely or not at all, after a trial run of its content at another path.

    Args:
        target: the file to write; Spark recognizes its type by its suffix.

    Returns:
        Its length in bytes.

    Raises:
        UsageError: the name does not end in `.tar.gz` or `.tgz`, there is no such directory, or a package is missing.
        RetentionError: this Python does not run from another place.
    """
    check_target(target, (".tar.gz", ".tgz"), ENVIRONMENT)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".environment-") as scratch:
        # Unpacking restores the mode of the root.
        Path(scratch).chmod(0o755)
        _copy_python(Path(scratch))
        _copy_packages(Path(scratch, _packages_folder()))
        _try(Path(scratch))
        with (
            open_output(str(target), ENVIRONMENT) as sink,
            tarfile.open(fileobj=sink, mode="w:gz", compresslevel=1) as archive,
        ):
            archive.add(scratch, arcname=".", filter=_of_nobody)
    return target.stat().st_size


def _is_environment(source: Any) -> bool:
    """Whether a file is a packed environment, by its first members."""
    try:
        with tarfile.open(fileobj=source, mode="r:gz") as archive:
            first = [member.name for member in islice(archive, _FIRST_MEMBERS)]
    except tarfile.TarError:
        return False
    return any(name.removeprefix("./") == "bin/python" for name in first)


ENVIRONMENT = OutputKind("a packed environment", _is_environment)


def required(distribution: str = DISTRIBUTION) -> list[metadata.Distribution]:
    """The installed distributions that a distribution needs, directly or indirectly, sorted by name.

    Raises:
        UsageError: one of them is not installed.
    """
    known: dict[str, metadata.Distribution] = {}
    names = [distribution]
    while names:
        for name, is_conditional in _requirements(names.pop()):
            if name in known or name in OF_THE_CLUSTER:
                continue
            try:
                known[name] = metadata.distribution(name)
            except metadata.PackageNotFoundError:
                if is_conditional:
                    continue
                raise UsageError(
                    f"{name} is not installed in {sys.prefix}, so that it cannot be packed; install this package with "
                    "its dependencies, or run `make setup`"
                ) from None
            names.append(name)
    return [known[name] for name in sorted(known)]


def _requirements(distribution: str) -> Iterator[tuple[str, bool]]:
    """Normalized name of each requirement, and whether it may be missing; the extras are `FOR_SPARK` and `FOR_NATS`."""
    try:
        stated = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        raise UsageError(
            f"{distribution} is not installed in {sys.prefix}, so its requirements are unknown; install it, or run "
            "`make setup`"
        ) from None
    for line in stated:
        match = _REQUIREMENT.match(line)
        if match is None:
            continue
        extra = _EXTRA.search(match[2] or "")
        wanted_by = (distribution, extra[1]) if extra else None
        if wanted_by in (None, FOR_SPARK, *FOR_NATS):
            is_conditional = match[2] is not None and wanted_by != FOR_SPARK
            yield re.sub(r"[-_.]+", "-", match[1]).lower(), is_conditional


def _copy_python(root: Path) -> None:
    """Copy this Python's interpreter and library."""
    interpreter = f"python{sysconfig.get_python_version()}"
    (root / "bin").mkdir()
    shutil.copy2(Path(sys._base_executable).resolve(), root / "bin" / interpreter)  # type: ignore[attr-defined]  # noqa: SLF001
    front = root / "bin" / "python"
    front.write_text(_FRONT.format(interpreter=interpreter), encoding="utf-8")
    front.chmod(0o755)
    library = root / sys.platlibdir / interpreter
    for place in dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")):
        base = place.replace(sys.prefix, sys.base_prefix, 1)
        shutil.copytree(base, library, ignore=_unwanted, dirs_exist_ok=True)
    (library / "sitecustomize.py").unlink(missing_ok=True)
    site = _SITE.format(packages=_packages_folder())
    (library / "sitecustomize.py").write_text(site, encoding="utf-8")
    shared = Path(*map(str, sysconfig.get_config_vars("LIBDIR", "INSTSONAME")))
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and shared.is_file():
        (root / "lib").mkdir(exist_ok=True)
        shutil.copy2(shared, root / "lib" / shared.name)


def _copy_packages(folder: Path) -> None:
    """Copy this project's packages, and the files of every distribution that it needs."""
    for name, source in package_files():
        _copy(source, folder / name)
    package = metadata.distribution(DISTRIBUTION)
    for file in package.files or ():
        if file.name == "METADATA":
            _copy(Path(str(package.locate_file(file))), folder / file)
    for distribution in required():
        for file in distribution.files or ():
            outside = file.is_absolute() or ".." in file.parts
            if not outside and not _NOT_PACKED.intersection(file.parts):
                _copy(Path(str(distribution.locate_file(file))), folder / file)


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _try(root: Path) -> None:
    """Run the copy at its current path, which also compiles its modules; refuse if any file comes from this Python."""
    here = [sys.prefix, *({sys.base_prefix} - {"/usr"})]
    done = subprocess.run(  # noqa: S603
        [str(root / "bin" / "python"), "-c", _TRIAL, *(f"{place}/" for place in here)],
        env={"PATH": os.defpath, "HOME": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or done.stdout.strip():
        reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RetentionError(
            f"{sys.base_prefix}: this Python does not run elsewhere ({'; '.join(reason)}); pack an environment "
            "whose Python is built to be moved (conda-pack), or install the dependencies on the workers and use "
            "--py-files"
        )


def _packages_folder() -> str:
    return f"{sys.platlibdir}/python{sysconfig.get_python_version()}/site-packages"


def _unwanted(folder: str, names: list[str]) -> set[str]:
    del folder
    return {name for name in names if name in _NOT_PACKED or name.startswith("config-")}


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without this machine's users."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
