"""Finding the configuration that a path means: a file, or a warehouse's directory that may hold one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention.config import Config

CONFIG_NAME = "retention.yaml"
_SUFFIXES = {".yaml", ".yml", ".json"}


def find_config(path: str | Path) -> Config:
    """The configuration of a file, or of a warehouse; one without a file has no limits.

    Raises:
        ConfigError: it is wrong; every mistake is named with its line.
    """
    # Reading configurations costs a third of a second, which `--help` has no use for.
    from retention.config import Config, load_config

    found = config_file(path)
    return Config.without_file(str(path)) if found is None else load_config(found)


def config_file(path: str | Path) -> Path | None:
    """The file to read for a path; None for a directory or an object store without one."""
    if "://" in str(path):
        return None
    local = Path(path)
    if local.is_file() or local.suffix in _SUFFIXES:
        return local
    inside = local / CONFIG_NAME
    return inside if inside.is_file() else None
