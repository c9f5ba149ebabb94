"""The zip of this package for `spark-submit --py-files`, for workers that have its dependencies."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from retention.errors import UsageError
from retention.storage.outputs import OutputKind, check_output, open_output

PACKAGE = "retention"
"""The package of this project, with the jobs."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)


def pack_zip(target: Path) -> int:
    """Write the zip, completely or not at all; the same package gives the same bytes.

    Args:
        target: the file to write; Spark recognizes its type by its suffix.

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
            # Fixed times make the zip depend only on the files' content.
            entry = zipfile.ZipInfo(name, _EARLIEST)
            archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target.stat().st_size


def package_files() -> Iterator[tuple[str, Path]]:
    """Import-path name and location of every file of the package, sorted.

    Raises:
        UsageError: the package is not in a directory, for example because it is in a zip.
    """
    spec = find_spec(PACKAGE)
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    if folder is None or not folder.is_dir():
        raise UsageError(
            f"{PACKAGE}: this package is not in a directory here, so that nothing can be packed; run the command "
            "where it is installed"
        )
    for file in sorted(folder.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield f"{PACKAGE}/{file.relative_to(folder).as_posix()}", file


def check_target(target: Path, ends: tuple[str, ...], kind: OutputKind) -> None:
    """Refuse a target that cannot be written, that Spark would misinterpret, or that has other content.

    Raises:
        UsageError: its name does not end in one of `ends`, its directory does not exist, or another kind of file is
            there.
    """
    if not target.name.endswith(ends):
        raise UsageError(
            f"{target}: Spark tells by its name how to unpack a file; give one that ends in {' or '.join(ends)}"
        )
    if not target.parent.is_dir():
        raise UsageError(f"{target}: there is no directory {target.parent}; make it first")
    check_output(str(target), kind)


def _is_zip(source: Any) -> bool:
    """Whether a file is an archive of this package, judged by the names in it."""
    try:
        with zipfile.ZipFile(source) as archive:
            return f"{PACKAGE}/__init__.py" in archive.namelist()
    except zipfile.BadZipFile:
        return False


ZIP = OutputKind("an archive of this package", _is_zip)
