"""The global options, and the warehouse that they name."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from retention.config.discovery import CONFIG_NAME, config_file, find_config
from retention.errors import UsageError
from retention.startup import spare_pandas

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.config import Config

Format = Literal["table", "json", "jsonl", "csv", "parquet", "html"]
OF_EXPORTS = ("csv", "parquet", "html")
"""Formats that only `history export` has."""


@dataclass(frozen=True)
class Settings:
    """The global options."""

    path: str | None
    """The path that `--warehouse` or `--config` names."""
    engine: Literal["auto", "spark", "local"] | None
    format: Format
    debug: bool
    wait_s: float = 0.0
    """The time to wait, in seconds, for another run on a stream to end."""
    command: str = ""
    """The name of the command, for events."""

    @property
    def place(self) -> str:
        """The path of the configuration file, or of a warehouse without one.

        Raises:
            UsageError: no option names one, and there is no `retention.yaml` in the current directory.
        """
        if self.path is not None:
            return self.path
        if not Path(CONFIG_NAME).is_file():
            raise UsageError(
                f"there is no {CONFIG_NAME} in this directory: give --warehouse DIR or --config FILE, or make a "
                "sandbox with `retention init DIR`"
            )
        return CONFIG_NAME

    @property
    def config_file(self) -> str | Path | None:
        """The configuration file; None: there is no file."""
        return config_file(self.place)

    def config(self) -> Config:
        """Read the configuration; imports nothing heavy."""
        return find_config(self.place)

    def open(self) -> Warehouse:
        """Open the warehouse."""
        spare_pandas()
        from retention.api.warehouse import open_warehouse

        return open_warehouse(
            self.place, engine=self.engine, clock=time.time_ns, wait_s=self.wait_s
        )


def settings_of(ctx: typer.Context) -> Settings:
    """The global options of a command."""
    settings = ctx.obj
    if not isinstance(settings, Settings):
        raise TypeError("a command ran without the global options")
    return settings
