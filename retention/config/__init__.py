"""The configuration: `retention.yaml`, checked and normalised as a server would."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention.config.describe import explain_config, explain_stream
    from retention.config.keeping import StorageSettings
    from retention.config.load import Config, load_config, parse_stream
    from retention.config.stream import StreamConfig

__all__ = [
    "Config",
    "StorageSettings",
    "StreamConfig",
    "explain_config",
    "explain_stream",
    "load_config",
    "parse_stream",
]

_HOME = {
    "Config": "load",
    "StorageSettings": "keeping",
    "StreamConfig": "stream",
    "explain_config": "describe",
    "explain_stream": "describe",
    "load_config": "load",
    "parse_stream": "load",
}
"""Importing the models takes a third of a second, which a command that only locates its configuration need not spend.
"""


def __getattr__(name: str) -> object:
    """Import a name of the package on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
