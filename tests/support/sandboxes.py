"""Warehouses on disk with a few messages, for tests of the upper layers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Commands block the import of pandas if it is not loaded; later tests in this process need it.
import pandas as pd  # type: ignore[import-untyped]  # noqa: F401
from typer.testing import Result

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.units import DAY, HOUR
from tests.support.command_line import invoke

NOW = 1_800_000_000 * 10**9
"""The clock of these warehouses: 2027-01-15T08:00:00Z."""


def lines(count: int, subject: str = "orders.new", first_ns: int = NOW - 10 * DAY) -> list[str]:
    """JSON lines of messages, an hour apart."""
    return [
        json.dumps(
            {"subject": subject, "data": f"message {number}", "ts_ns": first_ns + number * HOUR}
        )
        for number in range(count)
    ]


def configured(folder: Path, *streams: dict[str, Any], **defaults: Any) -> Path:
    """Write a `retention.yaml` (JSON is YAML)."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "retention.yaml"
    settings = {"format": "parquet", **defaults}
    content = {"warehouse": ".", "defaults": settings, "streams": list(streams)}
    file.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return file


def opened(folder: Path, *streams: dict[str, Any], now_ns: int = NOW, **defaults: Any) -> Warehouse:
    """A warehouse with a stopped clock."""
    return open_warehouse(configured(folder, *streams, **defaults), clock=lambda: now_ns)


ORDERS = {"name": "ORDERS", "subjects": ["orders.>"], "max_age": "7d"}


@dataclass(frozen=True)
class Commands:
    """The command line, in this process, on one configuration."""

    folder: Path

    def run(self, *arguments: object, stdin: str | None = None) -> Result:
        """Run a command; returns its result, also after a failure."""
        words = ["--config", str(self.folder / "retention.yaml"), *map(str, arguments)]
        return invoke(words, stdin=stdin)

    def json(self, *arguments: object, stdin: str | None = None) -> Any:
        """The JSON output of a successful command."""
        done = self.run("--format", "json", *arguments, stdin=stdin)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


def commands(folder: Path, *streams: dict[str, Any], **defaults: Any) -> Commands:
    """The command line on a new configuration."""
    configured(folder, *streams, **defaults)
    return Commands(folder)
