"""Packing this package into a zip for `spark-submit --py-files`: workers that have its dependencies need no more."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retention.errors import UsageError
from retention.storage.outputs import OutputKind, check_output, open_output

PACKAGES = ("retention", "schemas", "jobs")
"""Packages of this project that a job imports."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def pack_zip(target: Path) -> int:
    """Write the zip, whole or not at all; the same packages give the same bytes.

    Args:
        target: where it goes; Spark tells what it is given by its name's end.

    Returns:
        Its length in bytes.

    Raises:
        UsageError: the name does not end in `.zip`, or there is no such directory.
    """
    check_target(target, (".zip",), ZIP)
    with (
        open_output(str(target), ZIP) as sink,
        zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, file in package_files():
            # The time of a file says nothing that its content does not.
            entry = zipfile.ZipInfo(name, _EARLIEST)
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target.stat().st_size


def package_files() -> Iterator[tuple[str, Path]]:
    """Name below the root of an import path, and place, of every file of this project that a job needs; sorted.

    Raises:
        UsageError: a package is not where files are, such as in a zip itself.
    """
    for package in PACKAGES:
        spec = find_spec(package)
        folder = Path(spec.origin).parent if spec is not None and spec.origin else None
        if folder is None or not folder.is_dir():
            raise UsageError(
                f"{package}: this package is not in a directory here, so that nothing can be packed; run the command "
                "where it is installed"
            )
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield f"{package}/{file.relative_to(folder).as_posix()}", file


def check_target(target: Path, ends: tuple[str, ...], kind: OutputKind) -> None:
    """Refuse a file that cannot be written, that Spark would take for something else, or that holds something else.

    Raises:
        UsageError: its name does not end in one of `ends`, it is not in a directory, or there is another kind of file.
    """
    if not target.name.endswith(ends):
        raise UsageError(
            f"{target}: Spark tells by its name how to unpack a file; give one that ends in {' or '.join(ends)}"
        )
    if not target.parent.is_dir():
        raise UsageError(f"{target}: there is no directory {target.parent}; make it first")
    check_output(str(target), kind)


def _is_zip(source: Any) -> bool:
    """Whether a file is an archive of this package, by the names in it."""
    try:
        with zipfile.ZipFile(source) as archive:
            return f"{PACKAGES[0]}/__init__.py" in archive.namelist()
    except zipfile.BadZipFile:
        return False


ZIP = OutputKind("an archive of this package", _is_zip)
