"""The configuration: `retention.yaml`, checked and normalised as the server would."""

from __future__ import annotations

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
