"""The names of records of legal holds, listed without reading one."""

from __future__ import annotations

from retention.storage import files

DIRECTORY = "holds"
PLACED = ".json"


def record_names(root: str) -> set[str]:
    """The names of the records of a stream, by its directory: of legal holds placed, and of those that ended."""
    return {name for name in files.names(files.join(root, DIRECTORY)) if name.endswith(PLACED)}
