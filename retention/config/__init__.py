"""The configuration: `retention.yaml`, checked and normalised as the server would."""

from __future__ import annotations

from retention.config.file import Config, load_config, parse_stream
from retention.config.stream import StorageSettings, StreamConfig
from retention.config.words import explain_config, explain_stream

__all__ = [
    "Config",
    "StorageSettings",
    "StreamConfig",
    "explain_config",
    "explain_stream",
    "load_config",
    "parse_stream",
]
